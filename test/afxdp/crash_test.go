package afxdp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/dataplane/afxdp"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/mft"
)

// daemonEnv tells this test's program to be a daemon that forwards one group.
const daemonEnv = "ROCAST_TEST_DAEMON"

// daemonTask is what such a daemon does.
type daemonTask struct {
	Ports  []string
	Group  mft.Group // its memory does not travel with it
	Memory mft.VirtualRegion
	At     []mft.Region // by path
}

// The daemon is killed while the kernel carries a transfer, and another one takes over. No program
// stays behind, so that no packet is carried while nobody hears the answers, the QPs live, and
// every receiver gets all data.
func TestTheKernelStopsWhenTheDaemonIsKilled(t *testing.T) {
	if task := os.Getenv(daemonEnv); task != "" {
		beDaemon(t, task)
		return
	}
	l := newBareLab(t, labOptions{Options: bed.Options{Hosts: 4}})
	o := groupOptions{memory: streamBytes, pathMTU: 1024}
	g := &group{lab: l, Group: l.describe(o)}
	g.connect(t, o)
	data := bed.Random(o.memory, 3)
	first := l.startDaemon(t, g.Group)
	for off := 0; off < len(data); off += streamPart {
		g.post(t, off, data[off:off+streamPart])
	}
	first.until(t, "carrying")
	check(t, first.cmd.Process.Kill())
	_ = first.cmd.Wait() // reports the kill
	if links, err := l.Box.Exec("ip", "link"); err != nil || strings.Contains(links, "prog/xdp") {
		t.Fatalf("the daemon is dead and its program still there (%v):\n%s", err, links)
	}
	has := g.packetsTaken()
	awaitResent(t, l)
	if now := g.packetsTaken(); now != has {
		t.Errorf("receivers took %d packets without a daemon", now-has)
	}
	lacks := false
	for _, r := range g.receivers {
		r.rnic.Freeze(func() { lacks = lacks || !bytes.Equal(r.memory, data) })
	}
	if !lacks {
		t.Error("the transfer was over before the daemon was killed")
	}

	g.Restored = true
	second := l.startDaemon(t, g.Group)
	for off := 0; off < len(data); off += streamPart {
		if c, err := wait(t, g.source); err != nil || c.Status != rnic.Success {
			t.Fatalf("a WRITE ended with %v (%v)", c, err)
		}
	}
	second.until(t, "carrying")
	g.holds(t, data)
}

// packetsTaken counts the requests that the receivers have executed.
func (g *group) packetsTaken() (n uint64) {
	for _, r := range g.receivers {
		c := r.rnic.Counters()
		n += c.Get(rnic.RequestsExecuted)
	}
	return n
}

// awaitResent waits until the source has sent packets again: what it sent before has arrived by
// then.
func awaitResent(t *testing.T, l *lab) {
	t.Helper()
	resent := func() uint64 {
		c := l.Hosts[0].RNIC.Counters()
		return c.Get(rnic.FramesRetransmitted)
	}
	before := resent()
	testlab.Eventually(t, patience, "the source sends again", func() bool { return resent() > before+1 },
		func() string { return "" })
}

// daemonProcess is a running daemon.
type daemonProcess struct {
	cmd *exec.Cmd
	out *bufio.Reader
}

func (l *lab) startDaemon(t *testing.T, g *mft.Group) *daemonProcess {
	t.Helper()
	todo := daemonTask{Ports: l.Ports(), Group: *g, Memory: g.Memory.Range(0)}
	for i := range g.Paths {
		todo.At = append(todo.At, g.Paths[i].Regions.Region(g.Memory, 0))
	}
	task, err := json.Marshal(todo)
	check(t, err)
	p := &daemonProcess{cmd: exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")}
	p.cmd.Env = append(os.Environ(), daemonEnv+"="+string(task))
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	p.cmd.Stderr = os.Stderr
	stdout, err := p.cmd.StdoutPipe()
	check(t, err)
	p.out = bufio.NewReader(stdout)
	check(t, l.Box.Do(p.cmd.Start))
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	p.until(t, "forwarding")
	return p
}

// until waits for a line of the daemon's.
func (p *daemonProcess) until(t *testing.T, want string) {
	t.Helper()
	for {
		line, err := p.out.ReadString('\n')
		if err != nil {
			t.Fatalf("the daemon ended before it said %q: %v", want, err)
		}
		if line == want+"\n" {
			return
		}
	}
}

// beDaemon forwards a group until the process is killed. It says when it forwards, and when the
// kernel has carried packets.
func beDaemon(t *testing.T, text string) {
	var task daemonTask
	check(t, json.Unmarshal([]byte(text), &task))
	task.Group.Memory = mft.MustMemory(task.Memory)
	for i, at := range task.At {
		task.Group.Paths[i].Regions = task.Group.Memory.At(func(mft.VirtualRegion) mft.Region { return at })
	}
	sw, err := afxdp.Open(afxdp.Config{Ports: task.Ports, FanOut: true})
	check(t, err)
	go sw.Run(t.Context())
	sw.Engage()
	id, err := sw.Add(&task.Group)
	check(t, err)
	os.Stdout.WriteString("forwarding\n")
	testlab.Eventually(t, patience, "the kernel carries packets", func() bool {
		state, _ := sw.GroupState(id)
		return state.Engine.Carried > 500
	}, func() string { return "" })
	os.Stdout.WriteString("carrying\n")
	select {}
}
