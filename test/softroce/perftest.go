package softroce

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/rocast/rocast/test/softroce/control"
)

// Where servers listen, and the state LISTEN as /proc/net/tcp prints it.
const (
	perftestPort = 18515
	stateListen  = "0A"
)

// StartPerftest starts one of perftest's tools as server and returns when it can be connected to. It serves one client
// and ends.
func (g *Guest) StartPerftest(ctx context.Context, tool string, args ...string) (*control.Process, error) {
	all, err := g.perftestArgs(ctx, tool, args)
	if err != nil {
		return nil, err
	}
	p, err := g.Start(all...)
	if err != nil {
		return nil, err
	}
	listening := fmt.Sprintf("until grep -q ':%04X 0*:0000 %s' /proc/net/tcp /proc/net/tcp6; do sleep 0.02; done",
		perftestPort, stateListen)
	_, err = g.Run(ctx, "dash", "-c", listening)
	return p, err
}

// Perftest is the last line of a bandwidth test's table.
type Perftest struct {
	Bytes, Iterations int
	PeakGbps, Gbps    float64
	Output            string // all that was printed
}

// RunPerftest runs one of perftest's bandwidth tools as client of the server at addr, which may be a group's.
func (g *Guest) RunPerftest(ctx context.Context, addr netip.Addr, tool string, args ...string) (Perftest, error) {
	all, err := g.perftestArgs(ctx, tool, append(args, "--report_gbits", addr.String()))
	if err != nil {
		return Perftest{}, err
	}
	out, err := g.Run(ctx, all...)
	if err != nil {
		return Perftest{Output: out}, fmt.Errorf("%w\n%s", err, out)
	}
	return parsePerftest(out)
}

func (g *Guest) perftestArgs(ctx context.Context, tool string, args []string) ([]string, error) {
	index, err := g.GIDIndex(ctx, g.Addr)
	// -F: no complaint about the CPU's frequency.
	return append([]string{tool, "-F", "-d", "rxe0", "-x", index}, args...), err
}

// parsePerftest reads the line behind "#bytes #iterations BW peak BW average MsgRate".
func parsePerftest(out string) (Perftest, error) {
	result := Perftest{Output: out}
	_, table, found := strings.Cut(out, "#bytes")
	lines := strings.Split(table, "\n")
	if !found || len(lines) < 2 {
		return result, fmt.Errorf("no result in perftest's output:\n%s", out)
	}
	_, err := fmt.Sscan(lines[1], &result.Bytes, &result.Iterations, &result.PeakGbps, &result.Gbps)
	if err != nil {
		return result, fmt.Errorf("read perftest's result %s: %w", strconv.Quote(lines[1]), err)
	}
	return result, nil
}
