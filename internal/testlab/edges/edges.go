// Package edges runs rocast-edge at hosts of a bed, whose bridge replicates multicast as a switch
// does: only to the ports whose hosts have joined.
package edges

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/netns"
)

// responseInterval is how long hosts may take to answer a question for memberships.
const responseInterval = 100 * time.Millisecond

// Snoop lets a bridge forward multicast as IGMP and MLD snooping say. The bridge asks for
// memberships itself.
func Snoop(at *netns.NS, bridge string) error {
	set := func(values ...string) error {
		_, err := at.Exec("ip", append([]string{"link", "set", bridge, "type", "bridge"}, values...)...)
		return err
	}
	err := set("mcast_snooping", "1", "mcast_igmp_version", "3", "mcast_mld_version", "2", "mcast_last_member_interval", "10",
		"mcast_query_response_interval", fmt.Sprint(int(responseInterval/(10*time.Millisecond))))
	if err == nil {
		err = set("mcast_querier", "1") // afterwards: it uses what the intervals are then
	}
	// A bridge that has just begun to ask floods until hosts have had the time to answer.
	time.Sleep(2 * responseInterval)
	return err
}

// Build builds rocast-edge in a folder, and returns its path.
func Build(folder string) (path string, err error) {
	path = filepath.Join(folder, "rocast-edge")
	command := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "github.com/rocast/rocast/cmd/rocast-edge")
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build rocast-edge: %w: %s", err, output)
	}
	return path, nil
}

// Edge is a rocast-edge at a host. It may be started again after it was killed.
type Edge struct {
	program string // path
	at      *netns.NS
	options []string // of each start
	dir     string   // a BPF file system
	process *os.Process
	ended   chan struct{} // closed when the process has ended
	log     testlab.Output
}

// New prepares an edge at a host, which is started with these options. Close removes it.
func New(program string, at *netns.NS, options ...string) (*Edge, error) {
	dir, err := os.MkdirTemp("", "rce")
	if err != nil {
		return nil, err
	}
	netns.RemoveAtSignal(dir)
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		return nil, errors.Join(fmt.Errorf("mount a BPF file system: %w", err), os.Remove(dir))
	}
	return &Edge{program: program, at: at, options: options, dir: dir}, nil
}

func (e *Edge) flags() []string {
	return []string{"--pins", filepath.Join(e.dir, "edge"), "--state", e.dir + ".state/state.json"}
}

// Start starts the edge, which asks the boxes.
func (e *Edge) Start(boxes ...netip.AddrPort) error {
	arguments := slices.Concat([]string{"run"}, e.flags(), e.options)
	for _, box := range boxes {
		arguments = append(arguments, "--box", box.String())
	}
	command := exec.Command(e.program, arguments...)
	command.Stdout, command.Stderr = &e.log, &e.log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := e.at.Do(command.Start); err != nil {
		return err
	}
	ended := make(chan struct{})
	e.process, e.ended = command.Process, ended
	go func() { defer close(ended); _ = command.Wait() }()
	return nil
}

// Do runs another command of rocast-edge at the host: status or remove.
func (e *Edge) Do(command string) (string, error) {
	return e.at.Exec(e.program, append([]string{command}, e.flags()...)...)
}

// Kill ends the edge without a warning, if it runs. Its program stays at the interface.
func (e *Edge) Kill() error {
	if e.process == nil {
		return nil
	}
	err := e.process.Kill()
	<-e.ended
	e.process = nil
	return err
}

// Process is the process that runs.
func (e *Edge) Process() *os.Process { return e.process }

// Log is what the edge has logged, over all starts.
func (e *Edge) Log() string { return e.log.String() }

// Close ends the edge and removes what it has left.
func (e *Edge) Close() error {
	_ = e.Kill() // it may have ended
	_, err := e.Do("remove")
	return errors.Join(err, unix.Unmount(e.dir, 0), os.Remove(e.dir), os.RemoveAll(e.dir+".state"))
}
