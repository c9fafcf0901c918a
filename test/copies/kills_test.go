package copies

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/internal/testlab/softcast"
)

const (
	receivers = 3
	// mostFiles and mostBytes bound what is copied, so that a run takes some seconds.
	mostFiles = 8
	mostBytes = 3 << 20 // of a file
	// ends bounds how long the programs take to end when one of them, or their box, was killed: the
	// source waits 30 s for a receiver that does nothing.
	ends = 150 * time.Second
	// lastCopies is how often the programs are started when nobody is killed any more. A busy
	// machine may take a receiver for dead, and then it gets the rest the next time.
	lastCopies = 4
)

// The hosts are processes of the program of the test.
func TestMain(m *testing.M) {
	softcast.BeHost()
	boxes.Main(m)
}

// Whoever is killed, and whenever: what has its name is the source's, all others end by themselves,
// and after further runs with --resume all hosts have everything.
func TestKilledAtRandom(t *testing.T) {
	testlab.NeedRoot(t)
	runs := 2
	if testing.Short() {
		runs = 1
	}
	runs, first := testlab.Setting(t, "ROCAST_CP_KILLS", runs), testlab.Setting(t, "ROCAST_CP_SEED", 1)
	lab, err := softcast.Open(t.Context(), boxes.MustProgram(t), bed.Options{Hosts: 1 + receivers, Seed: uint32(first), LossPerMillion: 500})
	testlab.Permitted(t, err)
	t.Cleanup(func() { testlab.Must(t, lab.Close()) })
	for seed := first; seed < first+runs; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := &story{T: t, lab: lab, seed: seed, random: rand.New(rand.NewPCG(uint64(seed), 0)), dir: t.TempDir()}
			s.fill()
			for range 1 + s.random.IntN(2) {
				s.interrupted()
			}
			s.last()
		})
	}
}

// story is what happens to one tree.
type story struct {
	*testing.T
	lab    *softcast.Lab
	seed   int
	random *rand.Rand
	dir    string
	bytes  int64
	copies int // that were begun
	want   [][]byte
}

func (s *story) home(host int) string { return filepath.Join(s.dir, fmt.Sprint("host", host)) }
func (s *story) tree() string         { return filepath.Join(s.dir, "source", "tree") }

// fill makes the files, some of which have a hole.
func (s *story) fill() {
	content := rand.NewChaCha8([32]byte{byte(s.seed), byte(s.seed >> 8)})
	for i := range 1 + s.random.IntN(mostFiles) {
		path := filepath.Join(s.tree(), fmt.Sprint(s.random.IntN(3)), fmt.Sprint(i))
		b := make([]byte, s.random.IntN(mostBytes))
		_, _ = content.Read(b) // never fails
		testlab.Must(s, os.MkdirAll(filepath.Dir(path), 0o755))
		testlab.Must(s, os.WriteFile(path, b, 0o644))
		if s.random.IntN(3) == 0 {
			testlab.Must(s, os.Truncate(path, 2*mostBytes))
		}
		s.bytes += int64(len(b))
	}
	for i := 1; i <= receivers; i++ {
		testlab.Must(s, os.MkdirAll(s.home(i), 0o755))
	}
	list, err := softcast.Sums(s.tree())
	testlab.Must(s, err)
	s.want = bytes.Split(bytes.TrimSpace(list), []byte("\n"))
}

// process is rocast-cp on a host.
type process struct {
	command *exec.Cmd
	text    testlab.Output
	ended   chan struct{} // closed when it has
}

func (s *story) start(host int, args ...string) *process {
	own, err := os.Executable()
	testlab.Must(s, err)
	args = append(args, "--members", fmt.Sprint(1+receivers), "--group", fmt.Sprintf("kills-%d-%d", s.seed, s.copies), "--wait", "20s")
	p := &process{command: exec.Command(own, softcast.Arguments(args...)...), ended: make(chan struct{})}
	p.command.Env = s.lab.Environ()
	p.command.Stdout, p.command.Stderr = &p.text, &p.text
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	testlab.Must(s, s.lab.Hosts[host].NS.Do(p.command.Start))
	go func() { defer close(p.ended); _ = p.command.Wait() }()
	return p
}

// begin starts the source and the receivers, of which some give each other files.
func (s *story) begin() []*process {
	s.copies++
	all := []*process{s.start(0, "send", s.tree())}
	for i := 1; i <= receivers; i++ {
		args := []string{"recv", s.home(i), "--resume"}
		if s.random.IntN(3) > 0 {
			args = append(args, "--from-peers")
		}
		all = append(all, s.start(i, args...))
	}
	return all
}

// come is how many bytes of files the receivers have.
func (s *story) come() (n int64) {
	for i := 1; i <= receivers; i++ {
		_ = filepath.WalkDir(s.home(i), func(path string, e fs.DirEntry, err error) error {
			var st unix.Stat_t
			if err == nil && e.Type().IsRegular() && unix.Stat(path, &st) == nil {
				n += st.Blocks * 512
			}
			return nil // it may have got another name meanwhile
		})
	}
	return n
}

// interrupted is a copy during which somebody is killed.
func (s *story) interrupted() {
	at := s.come() + s.random.Int64N(max(1, receivers*s.bytes-s.come()))
	if s.random.IntN(8) == 0 {
		at = 0 // before all are there
	}
	victim := s.random.IntN(receivers + 3)
	all := s.begin()
	for s.come() < at && !slices.ContainsFunc(all, func(p *process) bool { return isClosed(p.ended) }) {
		time.Sleep(time.Millisecond) // and looks again
	}
	name := "the box"
	switch {
	case victim > receivers:
		testlab.Must(s, s.lab.Daemon.Kill())
	default:
		name = fmt.Sprint("host ", victim)
		_ = all[victim].command.Process.Kill() // it may have ended
	}
	s.Logf("%s is killed where the receivers have %d KiB of %d", name, s.come()>>10, receivers*s.bytes>>10)
	s.wait(all)
	if name == "the box" {
		s.lab.Daemon.StartFor(s, s.lab.Box)
	}
	for i := 1; i <= receivers; i++ {
		list, err := softcast.Sums(s.home(i))
		testlab.Must(s, err)
		for line := range bytes.Lines(list) {
			sum, path, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" tree/"))
			named := !strings.HasPrefix(filepath.Base(string(path)), ".rocast-cp-")
			if named && !slices.ContainsFunc(s.want, func(w []byte) bool { return string(w) == fmt.Sprintf("%s %s", sum, path) }) {
				s.Errorf("host %d: %s is not the source's", i, path)
			}
		}
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// wait waits until all programs have ended.
func (s *story) wait(all []*process) {
	deadline := time.After(ends)
	for host, p := range all {
		select {
		case <-p.ended:
		case <-deadline:
			s.Errorf("rocast-cp on host %d does not end:\n%s", host, p.text.String())
			for _, p := range all {
				_ = p.command.Process.Kill() // it may have ended
				<-p.ended
			}
			s.Fatalf("rocastd has logged:\n%s", s.lab.Daemon.Log())
		}
	}
}

// last is the copy after which all have everything.
func (s *story) last() {
	for n := 1; ; n++ {
		all := s.begin()
		s.wait(all)
		failed := slices.IndexFunc(all, func(p *process) bool { return p.command.ProcessState.ExitCode() != 0 })
		if failed < 0 {
			s.Logf("all have everything after %d copies, of which nobody was killed in %d", s.copies, n)
			break
		}
		text := ""
		for host, p := range all {
			text += fmt.Sprintf("host %d ended with %d:\n%s\n", host, p.command.ProcessState.ExitCode(), p.text.String())
		}
		s.Logf("copy %d, in which nobody was killed: %s", n, text)
		if n == lastCopies {
			s.Fatalf("nobody was killed in %d copies, and not all have everything; rocastd has logged:\n%s", n, s.lab.Daemon.Log())
		}
	}
	for i := 1; i <= receivers; i++ {
		list, err := softcast.Sums(filepath.Join(s.home(i), "tree"))
		testlab.Must(s, err)
		if got := bytes.Split(bytes.TrimSpace(list), []byte("\n")); !slices.EqualFunc(got, s.want, bytes.Equal) {
			s.Errorf("host %d has\n%s\nand the source\n%s", i, list, bytes.Join(s.want, []byte("\n")))
		}
	}
}
