package afxdp

import (
	"strings"
	"testing"

	"github.com/rocast/rocast/bpf"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/mft"
)

// A daemon that starts again forwards before the kernel's fan-out is loaded. Then the kernel takes
// the groups that are there already, and no frame of the open ports is lost on the way.
func TestThePortsForwardWhileTheKernelsFanOutIsLoaded(t *testing.T) {
	w := newWorld(t)
	for n := 1; n <= 2; n++ {
		w.plug(n, netns.VethOptions{})
		w.run(w.host, "ethtool", "-K", w.far[n].Name, "gro", "on") // takes redirected frames
	}
	loading, goOn := make(chan struct{}), make(chan struct{})
	err := w.tryOpen(Config{
		Ports: []string{"p1", "p2"}, FanOut: true,
		loadFanOut: func(c *bpf.Classifier, tables bpf.Tables, retained int) (*bpf.FanOut, error) {
			close(loading)
			<-goOn
			return c.LoadFanOut(tables, retained)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.runs()
	engaged := make(chan struct{})
	go func() { defer close(engaged); w.engage() }()
	<-loading
	reason := func() string {
		state, _ := w.sw.GroupState(w.group.ID)
		return state.Engine.Reason
	}
	w.arrives(1)
	if got := reason(); got != errLoading.Error() {
		t.Errorf("the group's reason is %q, want %q", got, errLoading)
	}
	behind := *w.group
	behind.QPN, behind.Source.RemoteQPN, behind.Paths = 2, 2, []mft.Path{w.group.Paths[0]}
	behind.Paths[0].Port, behind.Paths[0].RemoteQPN = 1, 2
	if _, err := w.sw.Add(&behind); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	<-engaged
	f := w.sw.fanOut.Load()
	if f == nil {
		t.Skip(w.sw.noFanOut)
	}
	if got := reason(); !strings.HasPrefix(got, "the kernel takes over after") {
		t.Errorf("the group's reason is %q", got)
	}
	if d := f.devices.Load(); d.fans[ports{1: 1}] != 0 || len(d.fans) != 1 || d.ifIndex[0] == 0 || d.ifIndex[1] == 0 {
		t.Errorf("the workers know %+v", d.fans)
	}
	for n := 1; n <= 2; n++ {
		w.arrives(n)
	}
	if got := w.refresh(); len(got) != 0 {
		t.Errorf("told %q", got)
	}
}
