package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/lossy"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/internal/testlab/slow"
	"github.com/rocast/rocast/internal/testlab/softcast"
)

const copyPort = 9000 // of the programs that the source or a neighbour connects to

// copyLab is a source and receivers that are programs, around a box with rocastd.
type copyLab struct {
	copyLayout
	*softcast.Lab
	dir    string // of all hosts' files, in memory
	links  []*lossy.Link
	copies int
}

// inCopyLab builds a lab for f.
func (b *bench) inCopyLab(ctx context.Context, l copyLayout, f func(*copyLab) error) error {
	c := &copyLab{copyLayout: l}
	err := c.build(ctx, filepath.Join(b.bin, "rocastd"))
	if err != nil {
		err = fmt.Errorf("build the lab: %w", err)
	} else {
		err = f(c)
	}
	return errors.Join(err, c.close())
}

func (l *copyLab) build(ctx context.Context, rocastd string) (err error) {
	if l.dir, err = os.MkdirTemp("/dev/shm", "rccopies"); err != nil {
		return err
	}
	netns.RemoveAtSignal(l.dir)
	if l.Lab, err = softcast.Open(ctx, rocastd, bed.Options{Hosts: 1 + l.receivers}); err != nil {
		return err
	}
	for i, h := range l.Hosts {
		// A packet is lost, and waits, as on a wire: the kernel joins none to longer ones.
		if _, err := h.NS.Exec("ethtool", "-K", h.End.Name, "tso", "off", "gso", "off"); err != nil {
			return err
		}
		if _, err := l.Box.Exec("ethtool", "-K", h.Port.Name, "gro", "off"); err != nil {
			return err
		}
		if _, err := h.NS.Exec("ip", "route", "add", "224.0.0.0/4", "dev", h.End.Name); err != nil {
			return err
		}
		if err := slow.Shape(h.End, l.rate); err != nil {
			return err
		}
		link, err := lossy.AttachToAll(h.End, uint32(i+1), 0)
		if err != nil {
			return err
		}
		l.links = append(l.links, link)
	}
	return nil
}

func (l *copyLab) close() error {
	var errs []error
	for _, link := range l.links {
		errs = append(errs, link.Close())
	}
	if l.Lab != nil {
		errs = append(errs, l.Lab.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(l.dir))...)
}

// lose makes the links of the receivers lose so many packets of a million, in each direction.
func (l *copyLab) lose(perMillion int) error {
	var errs []error
	for _, link := range l.links[1:] {
		errs = append(errs, link.Lose(perMillion))
	}
	return errors.Join(errs...)
}

// home is a host's directory. Host 0 is the source.
func (l *copyLab) home(host int) string { return filepath.Join(l.dir, fmt.Sprint(host)) }

// copiedName is the directory that is copied.
const copiedName = "files"

// copy brings files to all receivers.
func (l *copyLab) copy(ctx context.Context, w *copyWay, files fileSet) (r copied, err error) {
	l.copies++
	for i := range l.Hosts {
		err = errors.Join(err, os.RemoveAll(l.home(i)), os.Mkdir(l.home(i), 0o755))
	}
	source := filepath.Join(l.home(0), copiedName)
	if err = errors.Join(err, files.write(source)); err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(ctx, copyWithin)
	defer cancel()
	run := &copyRun{copyLab: l}
	defer run.end()
	w.listen(run, ctx)
	if run.begun != nil {
		return r, run.begun
	}
	box, errBox := l.Daemon.CPUTime()
	sent, errSent := slow.Sent(l.Hosts[0].End)
	if err := errors.Join(errBox, errSent); err != nil {
		return r, err
	}
	began := time.Now()
	w.send(run, ctx)
	if err := run.wait(); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("it had not ended after %v", copyWithin)
		}
		return r, err
	}
	r.seconds = time.Since(began).Seconds()
	run.end()
	r.hosts = run.used
	boxAfter, errBox := l.Daemon.CPUTime()
	sentAfter, errSent := slow.Sent(l.Hosts[0].End)
	r.box, r.sent = boxAfter-box, sentAfter-sent
	return r, errors.Join(errBox, errSent, l.compare(source))
}

// compare reports who does not have what the source has.
func (l *copyLab) compare(source string) error {
	want, err := softcast.Sums(source)
	if err != nil {
		return err
	}
	for i := 1; i <= l.receivers; i++ {
		got, err := softcast.Sums(filepath.Join(l.home(i), copiedName))
		if err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("what host %d has is not what was sent", i)
		}
	}
	return nil
}

// copyRun are the programs of one copy.
type copyRun struct {
	*copyLab
	begun   error
	done    []*copyProgram // which end when all is copied
	serving []*copyProgram // which are ended then
	used    time.Duration  // CPU time of all that have ended
}

// copyProgram is a program of a host.
type copyProgram struct {
	host    int
	command *exec.Cmd
	mu      sync.Mutex
	text    bytes.Buffer
}

// Write keeps what the program prints.
func (p *copyProgram) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

// start starts a program on a host.
func (r *copyRun) start(ctx context.Context, host int, name string, args ...string) *copyProgram {
	p := &copyProgram{host: host, command: exec.CommandContext(ctx, name, args...)}
	p.command.Env = r.Environ()
	p.command.Dir = r.home(host)
	p.command.Stdout, p.command.Stderr = p, p
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	p.command.Cancel = func() error { return unix.Kill(-p.command.Process.Pid, unix.SIGKILL) }
	if err := r.Hosts[host].NS.Do(p.command.Start); err != nil {
		r.begun = errors.Join(r.begun, err)
		p.command = nil
	}
	return p
}

// run starts a program that ends when all is copied.
func (r *copyRun) run(ctx context.Context, host int, name string, args ...string) {
	r.done = append(r.done, r.start(ctx, host, name, args...))
}

// serve starts a program that does not end by itself.
func (r *copyRun) serve(ctx context.Context, host int, name string, args ...string) {
	r.serving = append(r.serving, r.start(ctx, host, name, args...))
}

// listens waits until a host listens at a TCP port, unless a program has not begun.
func (r *copyRun) listens(ctx context.Context, host, port int) {
	r.waitForTCP(ctx, host, fmt.Sprintf(":%04X 00000000:0000 0A", port))
}

// joins waits until a host has a connection to the box, unless a program has not begun.
func (r *copyRun) joins(ctx context.Context, host int) {
	r.waitForTCP(ctx, host, fmt.Sprintf(":%04X 01 ", softcast.HostsPort))
}

// waitForTCP waits until a line of a host's /proc/net/tcp has a part, unless a program has not
// begun.
func (r *copyRun) waitForTCP(ctx context.Context, host int, part string) {
	for r.begun == nil {
		text, err := r.Hosts[host].NS.Exec("cat", "/proc/net/tcp")
		r.begun = errors.Join(err, ctx.Err())
		if strings.Contains(text, part) {
			return
		}
		time.Sleep(10 * time.Millisecond) // it asks again
	}
}

// wait waits for the programs that end when all is copied.
func (r *copyRun) wait() error {
	if r.begun != nil {
		return r.begun
	}
	var errs []error
	for _, p := range r.done {
		if err := p.command.Wait(); err != nil {
			lines := strings.Split(strings.TrimSpace(p.text.String()), "\n")
			errs = append(errs, fmt.Errorf("%s on host %d: %w (%s)", filepath.Base(p.command.Path), p.host, err, lines[len(lines)-1]))
		}
	}
	return errors.Join(errs...)
}

// end ends what runs.
func (r *copyRun) end() {
	for _, p := range append(r.serving, r.done...) {
		if p.command == nil {
			continue
		}
		if p.command.ProcessState == nil {
			_ = p.command.Cancel()
			_ = p.command.Wait() // it was killed
		}
		r.used += p.command.ProcessState.UserTime() + p.command.ProcessState.SystemTime()
	}
	r.serving, r.done = nil, nil
}

// copyWay is a way to bring files to many hosts. listen starts what has to be there before the
// source begins.
type copyWay struct {
	name   string
	listen func(*copyRun, context.Context)
	send   func(*copyRun, context.Context)
}

func copyWays() []copyWay {
	return []copyWay{
		{wayRocast, (*copyRun).rocastReceivers, (*copyRun).rocast},
		{wayRsync, (*copyRun).rsyncDaemons, (*copyRun).rsync},
		{wayChain, (*copyRun).chainReceivers, (*copyRun).chain},
		{wayUFTP, (*copyRun).uftpReceivers, (*copyRun).uftp},
		{wayUDP, (*copyRun).udpReceivers, (*copyRun).udp},
	}
}

// rocastReceivers wait in their join for the source.
func (r *copyRun) rocastReceivers(ctx context.Context) {
	for i := 1; i <= r.receivers; i++ {
		r.rocastProgram(ctx, i, "recv", r.home(i))
	}
	for i := 1; i <= r.receivers; i++ {
		r.joins(ctx, i)
	}
}

func (r *copyRun) rocast(ctx context.Context) { r.rocastProgram(ctx, 0, "send", copiedName) }

func (r *copyRun) rocastProgram(ctx context.Context, host int, args ...string) {
	own, err := os.Executable()
	if err != nil {
		r.begun = err
		return
	}
	args = append(args, "--group", fmt.Sprint("copy", r.copies), "--members", fmt.Sprint(1+r.receivers))
	r.run(ctx, host, own, softcast.Arguments(args...)...)
}

const rsyncConfig = "use chroot = no\nport = %d\n[all]\npath = %s\nread only = no\nuid = 0\ngid = 0\n"

func (r *copyRun) rsyncDaemons(ctx context.Context) {
	for i := 1; i <= r.receivers; i++ {
		config := filepath.Join(r.dir, fmt.Sprintf("rsync%d.conf", i))
		if err := os.WriteFile(config, fmt.Appendf(nil, rsyncConfig, copyPort, r.home(i)), 0o600); err != nil {
			r.begun = errors.Join(r.begun, err)
		}
		r.serve(ctx, i, "rsync", "--daemon", "--no-detach", "--config", config)
		r.listens(ctx, i, copyPort)
	}
}

func (r *copyRun) rsync(ctx context.Context) {
	for i := 1; i <= r.receivers; i++ {
		r.run(ctx, 0, "rsync", "--archive", "--whole-file", "--port", fmt.Sprint(copyPort), copiedName, fmt.Sprintf("rsync://%v/all/", r.Hosts[i].IP))
	}
}

// chainReceivers pass on what they get while they unpack it. Each connects to the next one when it
// starts, so the last one starts first, and nc listens for one connection only.
func (r *copyRun) chainReceivers(ctx context.Context) {
	for i := r.receivers; i > 0; i-- {
		script := fmt.Sprintf("nc -l %d </dev/null | tar x", copyPort)
		if i < r.receivers {
			script = fmt.Sprintf("mkfifo own; tar x <own & nc -l %d </dev/null | tee own | nc -N %v %d; wait $!; rm own", copyPort, r.Hosts[i+1].IP, copyPort)
		}
		r.run(ctx, i, "sh", "-c", script)
		r.listens(ctx, i, copyPort)
	}
}

func (r *copyRun) chain(ctx context.Context) {
	r.run(ctx, 0, "sh", "-c", fmt.Sprintf("tar c %s | nc -N %v %d", copiedName, r.Hosts[1].IP, copyPort))
}

func (r *copyRun) uftpReceivers(ctx context.Context) {
	for i := 1; i <= r.receivers; i++ {
		r.serve(ctx, i, "uftpd", "-d", "-t", "-I", r.Hosts[i].End.Name, "-D", r.home(i))
	}
}

func (r *copyRun) uftp(ctx context.Context) {
	r.run(ctx, 0, "uftp", "-I", r.Hosts[0].End.Name, "-R", fmt.Sprint(r.told()/1000), copiedName)
}

// told is the rate that programs are told, which leaves room for headers.
func (r *copyRun) told() int { return r.rate / 100 * 95 }

func (r *copyRun) udpReceivers(ctx context.Context) {
	for i := 1; i <= r.receivers; i++ {
		r.run(ctx, i, "sh", "-c", fmt.Sprintf("udp-receiver --nokbd --no-progress --interface %s | tar x", r.Hosts[i].End.Name))
	}
}

func (r *copyRun) udp(ctx context.Context) {
	r.run(ctx, 0, "sh", "-c", fmt.Sprintf("tar c %s | udp-sender --nokbd --no-progress --full-duplex --interface %s --min-receivers %d --max-bitrate %d",
		copiedName, r.Hosts[0].End.Name, r.receivers, r.told()))
}
