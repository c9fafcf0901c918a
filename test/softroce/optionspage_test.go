package softroce

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// The lines of the page around the table.
const (
	optionsBegin = "<!-- make perftest-options UPDATE=1 writes this table -->\n"
	optionsEnd   = "<!-- end of the table -->\n"
)

// optionRuns are command lines, each for one option of perftest. Messages are short, so that the
// table takes minutes.
var optionRuns = []string{
	"ib_write_bw",
	"ib_write_bw -q 4",
	"ib_write_bw -a",
	"ib_write_bw -D 1",
	"ib_write_bw -b",
	"ib_write_bw -c UC",
	"ib_write_bw -c UD",
	"ib_write_bw -c XRC",
	"ib_write_bw -c DC",
	"ib_write_bw --write_with_imm",
	"ib_write_bw --unsolicited_write",
	"ib_write_bw --use-srq",
	"ib_write_bw --odp",
	"ib_write_bw -t 16",
	"ib_write_bw -l 4",
	"ib_write_bw -m 512",
	"ib_write_bw -T 96",
	"ib_write_bw --flow_label 5",
	"ib_write_bw --report_gbits",
	"ib_write_bw --perform_warm_up",
	"ib_write_bw --ipv6",
	"ib_write_bw -z",
	"ib_send_bw",
	"ib_send_bw -q 2",
	"ib_send_bw -r 64",
	"ib_send_bw --recv_post_list 4",
	"ib_send_bw --use-srq",
	"ib_send_bw -b",
	"ib_send_bw -c UD",
	"ib_write_lat",
	"ib_send_lat",
	"ib_read_bw",
}

// optionRow is a line of the table: what becomes of a run that connects by TCP, and of one that
// connects by RDMA-CM.
func optionRow(run, byTCP, byCM string) string {
	return fmt.Sprintf("| `%s` | %s | %s |\n", run, byTCP, byCM)
}

func optionsHead(perftest, kernel string) string {
	return fmt.Sprintf("perftest %s on hosts with Linux %s:\n\n| options | without -R | with -R |\n|---|---|---|\n", perftest, kernel)
}

// The page has what was found out about each command line.
func TestThePageHasTheOptions(t *testing.T) {
	page, err := os.ReadFile(sessionPage)
	if err != nil {
		t.Fatal(err)
	}
	_, table, err := cutPage(string(page), optionsBegin, optionsEnd)
	if err != nil {
		t.Fatal(err)
	}
	var runs []string
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, " | "); strings.HasPrefix(line, "| `") && len(cells) == 3 {
			runs = append(runs, strings.Trim(cells[0], "| `"))
			for _, cell := range cells[1:] {
				if !strings.HasPrefix(cell, "works") && !strings.HasPrefix(cell, "refused: ") && !strings.HasPrefix(cell, "perftest: ") &&
					!strings.HasPrefix(cell, "hangs; ") {
					t.Errorf("%s: %s", cells[0], cell)
				}
			}
		}
	}
	if !slices.Equal(runs, optionRuns) {
		t.Errorf("%s has the options %q, want %q", sessionPage, runs, optionRuns)
	}
}

// cutPage returns what stands in the page around two lines, and between them.
func cutPage(page, begin, end string) (around [2]string, between string, err error) {
	head, rest, found := strings.Cut(page, begin)
	between, tail, ended := strings.Cut(rest, end)
	if !found || !ended {
		return around, "", fmt.Errorf("%s has nothing between %q and %q", sessionPage, begin, end)
	}
	return [2]string{head + begin, end + tail}, between, nil
}

// writePage writes text between two lines of the page.
func writePage(begin, end, text string) error {
	page, err := os.ReadFile(sessionPage)
	if err != nil {
		return err
	}
	around, _, err := cutPage(string(page), begin, end)
	if err != nil {
		return err
	}
	return os.WriteFile(sessionPage, []byte(around[0]+text+around[1]), 0o644)
}
