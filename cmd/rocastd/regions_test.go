package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/mft"
)

const withTable = `name: g1
ip: 10.77.0.100
qpn: 1
mtu: 1024
memory: table
members:
  - {ip: 10.77.0.1, qpn: 17, psn: 1000, role: source}
  - {ip: 10.77.0.2, qpn: 18, psn: 5}
  - {ip: 10.77.0.2, qpn: 19, psn: 5, remoteQPN: 2}
  - {ip: 10.77.0.2, qpn: 20, psn: 5, remoteQPN: 3}
`

// regionNumber is one of 4 KiB, which the receivers of withTable keep at different places.
func regionNumber(i int) client.NewRegion {
	r := client.NewRegion{VA: client.Hex(i) << 12, Length: 4096, RKey: 0x77}
	for qpn := range uint32(3) {
		r.At = append(r.At, client.RegionAt{IP: "10.77.0.2", RemoteQPN: qpn + 1, VA: client.Hex(qpn+1)<<40 + r.VA, RKey: client.Hex(qpn)})
	}
	return r
}

// ignoreNotices reads what the daemon tells systemd from now on, which it would wait for. The next
// daemon has a socket of its own.
func (b *box) ignoreNotices(t testing.TB) {
	if err := b.notify.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	go func(socket *net.UnixConn) {
		for notice := make([]byte, 256); ; {
			if _, err := socket.Read(notice); err != nil {
				return // closed
			}
		}
	}(b.notify)
	b.notify = newNotify(t)
}

// BenchmarkRegions loads as many regions as a group can have through a daemon, changes one, and
// starts the daemon again. Use -benchtime 1x.
func BenchmarkRegions(b *testing.B) {
	box := newBox(b)
	p := box.start(b)
	box.ignoreNotices(b)
	c := client.New(box.socket)
	if _, err := c.CreateGroup(b.Context(), []byte(withTable)); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		began := time.Now()
		added, err := c.AddRegions(b.Context(), "g1", func(yield func(client.NewRegion) bool) {
			for i := 0; i < mft.MaxRanges-1 && yield(regionNumber(i)); i++ {
			}
		})
		if err != nil || added != mft.MaxRanges-1 {
			b.Fatal(added, err)
		}
		b.ReportMetric(time.Since(began).Seconds(), "load-s")
		var took []time.Duration
		for range 100 {
			one := regionNumber(mft.MaxRanges)
			for _, change := range []client.RegionChange{{Add: []client.NewRegion{one}}, {Remove: []client.RegionStart{{VA: one.VA, RKey: one.RKey}}}} {
				began := time.Now()
				if _, err := c.ChangeRegions(b.Context(), "g1", change); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
			}
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "change-p50-ms")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "change-p99-ms")
		began = time.Now()
		if end := p.end(b, unix.SIGTERM); end != "exit status 0" {
			b.Fatal(end)
		}
		b.ReportMetric(time.Since(began).Seconds(), "stop-s")
		began = time.Now()
		p = box.start(b)
		box.ignoreNotices(b)
		b.ReportMetric(time.Since(began).Seconds(), "start-s")
		list, err := c.Regions(b.Context(), "g1", mft.MaxRanges-3, 0)
		if err != nil || list.Total != mft.MaxRanges-1 || len(list.Regions) != 2 || list.Regions[1].VA != client.Hex(mft.MaxRanges-2)<<12 {
			b.Fatalf("%+v, %v", list, err)
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
		if err != nil {
			b.Fatal(err)
		}
		var peak int
		for line := range strings.Lines(string(status)) {
			_, _ = fmt.Sscanf(line, "VmHWM: %d kB", &peak)
		}
		b.ReportMetric(float64(peak)/1024, "start-peak-MiB")
		stored, err := os.Stat(filepath.Join(filepath.Dir(box.config), "state", "groups", "g1.regions"))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(stored.Size())/(1<<20), "stored-MiB")
		if _, err := c.RemoveGroup(b.Context(), "g1"); err != nil {
			b.Fatal(err)
		}
		if _, err := c.CreateGroup(b.Context(), []byte(withTable)); err != nil {
			b.Fatal(err)
		}
	}
}
