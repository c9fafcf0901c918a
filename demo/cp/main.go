// Command cp shows rocast-cp on one machine. A source and three receivers live in network
// namespaces around a box with rocastd, and every link loses one RoCE packet in a thousand, in both
// directions. The source sends a directory; then it sends a larger one, of which one receiver is
// killed in the middle, and that one gets the rest with --resume. The command compares the SHA-256
// of every file, and exits with status 1 if something was not as promised.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/internal/testlab/softcast"
)

const (
	receivers = 3

	smallFiles = 1000
	killedMiB  = 24 // of the file that is sent when a receiver is killed
)

func main() {
	softcast.BeHost()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	d := &demo{out: os.Stdout}
	flag.StringVar(&d.bin, "bin", "build", "directory of rocastd")
	seed := flag.Uint("seed", uint(time.Now().UnixNano()&0xFFFFFF), "seed of the losses")
	flag.IntVar(&d.loss, "loss", 1000, "RoCE packets of a million lost on each link, each way")
	flag.Parse()
	d.seed = uint32(*seed)
	ctx, cancel := context.WithTimeout(ctx, 110*time.Second)
	defer cancel()
	if err := d.run(ctx, filepath.Join(d.bin, "rocastd")); err != nil {
		fmt.Println("FAIL:", err)
		os.Exit(1)
	}
	fmt.Println("PASS")
}

// demo is one run.
type demo struct {
	out  io.Writer
	bin  string
	seed uint32
	loss int

	dir string // of all hosts' files
	lab *softcast.Lab
	mu  sync.Mutex // of out
}

func (d *demo) run(ctx context.Context, rocastd string) (err error) {
	d.say("seed %d: %.1f RoCE packets in 1,000 lost on every link, each way", d.seed, float64(d.loss)/1000)
	if d.dir, err = os.MkdirTemp("", "rccp"); err != nil {
		return err
	}
	netns.RemoveAtSignal(d.dir)
	defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	if d.lab, err = softcast.Open(ctx, rocastd, bed.Options{Hosts: 1 + receivers, Seed: d.seed, LossPerMillion: d.loss}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.lab.Close()) }()
	if err := d.directory(ctx); err != nil {
		return fmt.Errorf("%w\nrocastd's log:\n%s", err, d.lab.Daemon.Log())
	}
	if err := d.killed(ctx); err != nil {
		return fmt.Errorf("%w\nrocastd's log:\n%s", err, d.lab.Daemon.Log())
	}
	return nil
}

func (d *demo) say(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(d.out, format+"\n", args...)
}

// directory brings a directory to all hosts.
func (d *demo) directory(ctx context.Context) error {
	tree := filepath.Join(d.dir, "source", "data")
	content := rand.NewChaCha8([32]byte{byte(d.seed)})
	for i := range smallFiles {
		if err := fill(filepath.Join(tree, fmt.Sprint("small/", i%10, "/", i)), content, int64(i)); err != nil {
			return err
		}
	}
	if err := errors.Join(fill(filepath.Join(tree, "large"), content, 8<<20), os.Symlink("large", filepath.Join(tree, "link"))); err != nil {
		return err
	}
	begin := time.Now()
	source := d.start(ctx, 0, "send", tree, "--group", "first", "--members", fmt.Sprint(1+receivers))
	var all []*process
	for i := 1; i <= receivers; i++ {
		all = append(all, d.start(ctx, i, "recv", d.home(i), "--group", "first", "--members", fmt.Sprint(1+receivers)))
	}
	for _, p := range append(all, source) {
		if err := p.ends(0); err != nil {
			return err
		}
	}
	d.say("%d files were sent to %d hosts in %v", smallFiles+1, receivers, time.Since(begin).Round(time.Millisecond))
	return d.compare("data", 1, 2, 3)
}

// killed kills a receiver in the middle of a large file, and brings it the rest afterwards.
func (d *demo) killed(ctx context.Context) error {
	file := filepath.Join(d.dir, "source", "weights")
	if err := fill(file, rand.NewChaCha8([32]byte{byte(d.seed), 1}), killedMiB<<20); err != nil {
		return err
	}
	source := d.start(ctx, 0, "send", file, "--group", "second", "--members", fmt.Sprint(1+receivers))
	var all []*process
	for i := 1; i <= receivers; i++ {
		all = append(all, d.start(ctx, i, "recv", d.home(i), "--resume", "--group", "second", "--members", fmt.Sprint(1+receivers)))
	}
	if err := d.partial(ctx, receivers); err != nil {
		return err
	}
	d.say("kill -9 of rocast-cp on host %d", receivers)
	if err := all[receivers-1].command.Process.Kill(); err != nil {
		return err
	}
	for _, p := range all[:receivers-1] {
		if err := p.ends(0); err != nil {
			return err
		}
	}
	if err := source.ends(3); err != nil {
		return err
	}
	if gone := d.lab.Hosts[receivers].IP.String(); !strings.Contains(source.text(), gone) {
		return fmt.Errorf("the source does not name %s:\n%s", gone, source.text())
	}
	if err := d.compare("weights", 1, 2); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(d.home(receivers), "weights")); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("what was interrupted has its name: %v", err)
	}
	source = d.start(ctx, 0, "send", file, "--group", "third", "--members", "2")
	last := d.start(ctx, receivers, "recv", d.home(receivers), "--resume", "--group", "third", "--members", "2")
	if err := errors.Join(last.ends(0), source.ends(0)); err != nil {
		return err
	}
	return d.compare("weights", receivers)
}

// partial waits until a receiver has a part of the file.
func (d *demo) partial(ctx context.Context, host int) error {
	for {
		list, err := filepath.Glob(filepath.Join(d.home(host), ".rocast-cp-*"))
		if err != nil {
			return err
		}
		for _, path := range list {
			var s unix.Stat_t
			if unix.Stat(path, &s) == nil && s.Blocks*512 > killedMiB<<20/4 {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return errors.New("nothing arrives")
		case <-time.After(time.Millisecond):
		}
	}
}

func fill(path string, from io.Reader, bytes int64) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.CopyN(f, from, bytes)
	return errors.Join(err, f.Close())
}

func (d *demo) home(i int) string { return filepath.Join(d.dir, fmt.Sprint("host", i)) }

// compare compares what hosts have with what the source has.
func (d *demo) compare(name string, hosts ...int) error {
	want, err := softcast.Sums(filepath.Join(d.dir, "source", name))
	if err != nil {
		return err
	}
	for _, i := range hosts {
		got, err := softcast.Sums(filepath.Join(d.home(i), name))
		if err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("%s of host %d is not that of the source", name, i)
		}
		d.say("host %d: %s has the names and SHA-256 of the source's", i, name)
	}
	return nil
}

// process is rocast-cp on a host.
type process struct {
	d       *demo
	host    int
	command *exec.Cmd
	begun   error
	mu      sync.Mutex
	lines   bytes.Buffer
}

func (d *demo) start(ctx context.Context, host int, args ...string) *process {
	p := &process{d: d, host: host}
	own, err := os.Executable()
	if err != nil {
		p.begun = err
		return p
	}
	p.command = exec.CommandContext(ctx, own, softcast.Arguments(args...)...)
	p.command.Env = d.lab.Environ()
	p.command.Stdout, p.command.Stderr = p, p
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.begun = d.lab.Hosts[host].NS.Do(p.command.Start)
	return p
}

// Write shows what the process prints.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines.Write(b)
	for line := range strings.Lines(string(b)) {
		p.d.say("  host %d | %s", p.host, strings.TrimRight(line, "\n"))
	}
	return len(b), nil
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lines.String()
}

// ends waits for the end of the process, which has to have this exit status.
func (p *process) ends(status int) error {
	if p.begun != nil {
		return p.begun
	}
	err := p.command.Wait()
	if got := p.command.ProcessState.ExitCode(); got != status {
		return fmt.Errorf("rocast-cp on host %d ended with %d instead of %d: %w", p.host, got, status, err)
	}
	return nil
}
