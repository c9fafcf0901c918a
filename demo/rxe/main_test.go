package main

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
)

func TestParseCounters(t *testing.T) {
	const text = "link rcrxe4711_1/1 sent_pkts 6441 rcvd_pkts 148 completer_retry_err 0 sent_bytes 6841504 \n"
	got := parseCounters(text)
	want := map[string]uint64{"sent_pkts": 6441, "rcvd_pkts": 148, "completer_retry_err": 0, "sent_bytes": 6841504}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestTheResultIsPerftestsTable(t *testing.T) {
	p := &program{}
	const heading, row = "#bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]", "65536      200              2.33               1.68   \t\t   0.000027"
	fmt.Fprintf(&p.out, "---\n local address: LID 0000\n %s\n %s\n---\n", heading, row)
	got, err := p.result()
	if err != nil || got != heading+"\n"+row {
		t.Errorf("%q, %v", got, err)
	}
	p = &program{}
	fmt.Fprintf(&p.out, " %s\n %s\n---\n", heading, strings.NewReplacer("2.33", "0.00", "1.68", "0.00").Replace(row))
	if got, err := p.result(); err != nil || !strings.Contains(got, "\n(0.00: ") {
		t.Errorf("%q, %v", got, err)
	}
	for _, out := range []string{"", "Unable to init the socket connection\n", " " + heading + "\n", " " + heading + "\n---\n"} {
		p := &program{}
		fmt.Fprint(&p.out, out)
		if got, err := p.result(); err == nil {
			t.Errorf("%q is the result of %q", got, out)
		}
	}
}

// A source that sends everything three times, one that sends less than the run has, and a receiver
// that lacks something are not as promised.
func TestTheReportNamesWhatIsNotAsPromised(t *testing.T) {
	const packets = 64 // of one WRITE
	for _, c := range []struct {
		sent, lacks uint64
		wrong       string
	}{
		{packets + 3, 0, ""},
		{2*packets - 1, 0, ""},
		{2 * packets, 0, "the source sent 128 packets for 64"},
		{packets - 1, 0, "the source sent 63 packets for 64"},
		{packets, 1, "host 4 received 63 packets of 64"},
	} {
		var before, after [1 + receivers]map[string]uint64
		for i := range before {
			before[i] = map[string]uint64{"sent_pkts": 7, "rcvd_pkts": 9}
			after[i] = map[string]uint64{"sent_pkts": 7 + c.sent, "rcvd_pkts": 9 + packets}
		}
		after[receivers]["rcvd_pkts"] -= c.lacks
		var out strings.Builder
		err := (&demo{out: &out, writes: 1}).report(before, after)
		if got := fmt.Sprint(err); (c.wrong == "") != (err == nil) || err != nil && got != c.wrong {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Two runs at once have devices of different names, and so has a run behind one that was killed.
func TestDevicesHaveTheNamesOfTheirRun(t *testing.T) {
	if got, want := deviceName(3), fmt.Sprintf("rcrxe%d_3", os.Getpid()); got != want || deviceName(0) == got {
		t.Errorf("%s, want %s", got, want)
	}
}
