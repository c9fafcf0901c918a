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

	"github.com/rocast/rocast/host/copying/program"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/internal/testlab/lossy"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/internal/testlab/slow"
)

// hostWord is the first argument with which this command is rocast-cp of a host.
const hostWord = "host"

const (
	copyPort  = 9000 // of the programs that the source or a neighbour connects to
	hostsPort = 7472 // of hosts: listen
)

// yard is a source and receivers that are programs, around a box with rocastd.
type yard struct {
	copySite
	*boxes.Single
	dir    string // of all hosts' files, in memory
	links  []*lossy.Link
	copies int
}

// inYard builds a yard for f.
func (b *bench) inYard(ctx context.Context, at copySite, f func(*yard) error) error {
	y := &yard{copySite: at, Single: &boxes.Single{}}
	err := y.build(ctx, b.bin)
	if err != nil {
		err = fmt.Errorf("build the lab: %w", err)
	} else {
		err = f(y)
	}
	return errors.Join(err, y.close())
}

func (y *yard) build(ctx context.Context, bin string) (err error) {
	if y.dir, err = os.MkdirTemp("/dev/shm", "rccopies"); err != nil {
		return err
	}
	netns.RemoveAtSignal(y.dir)
	if y.Bed, err = bed.New(bed.Options{Hosts: 1 + y.receivers, NoRNIC: true}); err != nil {
		return err
	}
	for i, h := range y.Hosts {
		// A packet is lost, and waits, as on a wire: the kernel joins none to longer ones.
		if _, err := h.NS.Exec("ethtool", "-K", h.End.Name, "tso", "off", "gso", "off"); err != nil {
			return err
		}
		if _, err := y.Box.Exec("ethtool", "-K", h.Port.Name, "gro", "off"); err != nil {
			return err
		}
		if _, err := h.NS.Exec("ip", "route", "add", "224.0.0.0/4", "dev", h.End.Name); err != nil {
			return err
		}
		if err := slow.Shape(h.End, y.rate); err != nil {
			return err
		}
		link, err := lossy.AttachToAll(h.End, uint32(i+1), 0)
		if err != nil {
			return err
		}
		y.links = append(y.links, link)
	}
	config := boxes.Ports(y.Ports()...) + fmt.Sprintf("hosts: {listen: \"%s\", groupIPs: [\"%v\"]}\n", y.hosting(), y.GroupIP())
	if y.Daemon, err = boxes.NewDaemon(filepath.Join(bin, "rocastd"), config); err != nil {
		return err
	}
	return y.Daemon.Start(ctx, y.Box)
}

func (y *yard) hosting() string { return fmt.Sprintf("%v:%d", y.IP(), hostsPort) }

func (y *yard) close() error {
	var errs []error
	for _, l := range y.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, y.Single.Close(), os.RemoveAll(y.dir))...)
}

// lose makes the links of the receivers lose so many packets of a million, in each direction.
func (y *yard) lose(perMillion int) error {
	var errs []error
	for _, l := range y.links[1:] {
		errs = append(errs, l.Lose(perMillion))
	}
	return errors.Join(errs...)
}

// home is a host's directory. Host 0 is the source.
func (y *yard) home(host int) string { return filepath.Join(y.dir, fmt.Sprint(host)) }

// cargoName is the directory that is copied.
const cargoName = "cargo"

// copy brings files to all receivers.
func (y *yard) copy(ctx context.Context, w *copyWay, c cargo) (r copied, err error) {
	y.copies++
	for i := range y.Hosts {
		err = errors.Join(err, os.RemoveAll(y.home(i)), os.Mkdir(y.home(i), 0o755))
	}
	source := filepath.Join(y.home(0), cargoName)
	if err = errors.Join(err, c.write(source)); err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(ctx, copyWithin)
	defer cancel()
	run := &copyRun{yard: y}
	defer run.end()
	w.listen(run, ctx)
	if err := run.await(ctx, w.ports); err != nil {
		return r, err
	}
	box, errBox := y.Daemon.CPUTime()
	sent, errSent := slow.Sent(y.Hosts[0].End)
	if err := errors.Join(run.begun, errBox, errSent); err != nil {
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
	after, errBox := y.Daemon.CPUTime()
	sentAfter, errSent := slow.Sent(y.Hosts[0].End)
	r.box, r.sent = after-box, sentAfter-sent
	return r, errors.Join(errBox, errSent, y.compare(source))
}

// compare reports who does not have what the source has.
func (y *yard) compare(source string) error {
	want, err := treeSum(source)
	if err != nil {
		return err
	}
	for i := 1; i <= y.receivers; i++ {
		got, err := treeSum(filepath.Join(y.home(i), cargoName))
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("what host %d has is not what was sent", i)
		}
	}
	return nil
}

// copyRun are the programs of one copy.
type copyRun struct {
	*yard
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
	p.command.Env = append(os.Environ(), program.BoxVariable+"="+r.hosting())
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

// await waits until receivers listen at a TCP port; 0: they need not.
func (r *copyRun) await(ctx context.Context, port int) error {
	if r.begun != nil {
		return r.begun
	}
	for i := 1; i <= r.receivers && port > 0; i++ {
		listens := false
		for !listens {
			text, err := r.Hosts[i].NS.Exec("cat", "/proc/net/tcp")
			if err = errors.Join(err, ctx.Err()); err != nil {
				return err
			}
			if listens = strings.Contains(text, fmt.Sprintf(":%04X 00000000:0000 0A", port)); !listens {
				time.Sleep(10 * time.Millisecond) // it asks again
			}
		}
	}
	return nil
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
	ports  int // TCP port at which receivers listen; 0: none
	listen func(*copyRun, context.Context)
	send   func(*copyRun, context.Context)
}

func copyWays() []copyWay {
	return []copyWay{
		{wayRocast, 0, func(*copyRun, context.Context) {}, (*copyRun).rocast},
		{wayRsync, copyPort, (*copyRun).rsyncDaemons, (*copyRun).rsync},
		{wayChain, copyPort, (*copyRun).chainReceivers, (*copyRun).chain},
		{wayUFTP, 0, (*copyRun).uftpReceivers, (*copyRun).uftp},
		{wayUDP, 0, (*copyRun).udpReceivers, (*copyRun).udp},
	}
}

// rocast is rocast-cp, from the join on.
func (r *copyRun) rocast(ctx context.Context) {
	own, err := os.Executable()
	if err != nil {
		r.begun = err
		return
	}
	group := []string{"--group", fmt.Sprint("copy", r.copies), "--members", fmt.Sprint(1 + r.receivers)}
	for i := 1; i <= r.receivers; i++ {
		r.run(ctx, i, own, append([]string{hostWord, "recv", r.home(i)}, group...)...)
	}
	r.run(ctx, 0, own, append([]string{hostWord, "send", cargoName}, group...)...)
}

const rsyncConfig = "use chroot = no\nport = %d\n[all]\npath = %s\nread only = no\nuid = 0\ngid = 0\n"

func (r *copyRun) rsyncDaemons(ctx context.Context) {
	for i := 1; i <= r.receivers; i++ {
		config := filepath.Join(r.dir, fmt.Sprintf("rsync%d.conf", i))
		if err := os.WriteFile(config, fmt.Appendf(nil, rsyncConfig, copyPort, r.home(i)), 0o600); err != nil {
			r.begun = errors.Join(r.begun, err)
		}
		r.serve(ctx, i, "rsync", "--daemon", "--no-detach", "--config", config)
	}
}

func (r *copyRun) rsync(ctx context.Context) {
	for i := 1; i <= r.receivers; i++ {
		r.run(ctx, 0, "rsync", "--archive", "--whole-file", "--port", fmt.Sprint(copyPort), cargoName, fmt.Sprintf("rsync://%v/all/", r.Hosts[i].IP))
	}
}

// chainReceivers pass on what they get while they unpack it.
func (r *copyRun) chainReceivers(ctx context.Context) {
	for i := r.receivers; i > 0; i-- {
		script := fmt.Sprintf("nc -l %d </dev/null | tar x", copyPort)
		if i < r.receivers {
			script = fmt.Sprintf("mkfifo own; tar x <own & nc -l %d </dev/null | tee own | nc -N %v %d; wait $!; rm own", copyPort, r.Hosts[i+1].IP, copyPort)
		}
		r.run(ctx, i, "sh", "-c", script)
	}
}

func (r *copyRun) chain(ctx context.Context) {
	r.run(ctx, 0, "sh", "-c", fmt.Sprintf("tar c %s | nc -N %v %d", cargoName, r.Hosts[1].IP, copyPort))
}

func (r *copyRun) uftpReceivers(ctx context.Context) {
	for i := 1; i <= r.receivers; i++ {
		r.serve(ctx, i, "uftpd", "-d", "-t", "-I", r.Hosts[i].End.Name, "-D", r.home(i))
	}
}

func (r *copyRun) uftp(ctx context.Context) {
	r.run(ctx, 0, "uftp", "-I", r.Hosts[0].End.Name, "-R", fmt.Sprint(r.told()/1000), cargoName)
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
		cargoName, r.Hosts[0].End.Name, r.receivers, r.told()))
}
