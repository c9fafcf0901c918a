package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/internal/testlab"
)

// tryStart runs a daemon that is not to come up, and returns its exit status and its last line.
func (b *box) tryStart(t *testing.T, config string) (exit int, line string) {
	t.Helper()
	if err := os.WriteFile(b.config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*testlab.Patience) // it has come up
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), asDaemon+"="+b.config)
	var output []byte
	err := b.Do(func() (err error) {
		output, err = cmd.CombinedOutput()
		return err
	})
	if exited := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exited) {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	return cmd.ProcessState.ExitCode(), lines[len(lines)-1]
}

// check is what rocastd --check says of the config.
func (b *box) check(t *testing.T) (exit int, line string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	err := b.Do(func() error {
		exit = run(t.Context(), []string{"--check", "--config", b.config}, &stdout, &stderr)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return exit, strings.TrimSpace(stdout.String() + stderr.String())
}

// What the next start would only repeat ends with the status that the unit does not try again.
// --check says the same without a start, and a reload refuses it: a restart would end the daemon.
func TestAMistakeInTheConfigIsNotTriedAgain(t *testing.T) {
	b, runs := newBox(t), newBox(t)
	daemon := client.New(runs.socket)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	locked := filepath.Join(dir, "locked")
	if err := os.MkdirAll(filepath.Join(locked, "lock"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, box := range []*box{b, runs} {
		box.ip(t, "link", "add", "br1", "type", "bridge")
	}
	noted := filepath.Join(dir, "noted")
	if err := os.Mkdir(noted, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(noted, "addresses"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	runs.start(t)
	runs.ignoreNotices(t)
	long := filepath.Join(dir, strings.Repeat("x", 100))
	for _, c := range []struct{ change, want string }{
		{"ports: [lo]", "open port lo: it is not an Ethernet interface"},
		{"ports: [br0]", "open port br0: it is a bridge; name its ports instead: eth1, eth2"},
		{"ports: [eth1, br1]", "open port br1: it is a bridge; name its ports instead"},
		{"ports: ['enp*']", "ports: no interface matches enp*"},
		{"ports: [eth1, eth2]\nworkers: 2", "open port eth1: it has 1 RX and 1 TX queues for 2 workers"},
		{"ports: [eth1, eth2]\nmode: zero-copy", "open port eth1: "},
		{"ports: [eth1]\nrepairMemory: 900GiB", "repairMemory is 943718400 KiB, and 1 workers can share from 1MiB to "},
		{"ports: [eth1]\negress: [{port: eth1, limit: 1GiB}]", "egress of port eth1: limit is 1048576 KiB"},
		{"ports: [eth1]\nsocket: " + long, "line 2: socket "},
		{"ports: [eth1]\nsocket: " + file, "a file that is not a socket has this name"},
		{"ports: [eth1]\nsocket: " + dir, "a file that is not a socket has this name"},
		{"ports: [eth1]\nsocket: " + file + "/rocast.sock", "open the socket " + file + "/rocast.sock: "},
		{"ports: [eth1]\nstateDir: " + file, "create the state directory: "},
		{"ports: [eth1]\nstateDir: " + locked, "lock the state directory: open " + locked + "/lock: is a directory"},
		{"ports: [eth1]\nstateDir: " + noted, "keep notes of addresses: mkdir " + noted + "/addresses: not a directory; remove the file"},
		{"ports: [eth1]\nmetrics: 127.0.0.1:7472\nhosts: {listen: 127.0.0.1:7472, groupIPs: [10.77.0.100]}",
			"line 3: hosts: listen 127.0.0.1:7472 is taken by metrics: 127.0.0.1:7472; write another port"},
		{"ports: [eth1]\nsocketGroup: nobody-has-this", "socketGroup: group: unknown group nobody-has-this"},
	} {
		for _, key := range []string{"socket", "stateDir"} {
			if !strings.Contains(c.change, key+":") {
				c.change += fmt.Sprintf("\n%s: %s", key, filepath.Join(dir, key))
			}
		}
		if exit, line := b.tryStart(t, c.change+"\n"); exit != exitConfig || !strings.Contains(line, c.want) {
			t.Errorf("%s\nexit %d, %s; want %d, %s", c.change, exit, line, exitConfig, c.want)
		}
		if exit, line := b.check(t); exit != exitConfig || !strings.Contains(line, c.want) {
			t.Errorf("--check: %s\nexit %d, %s; want %d, %s", c.change, exit, line, exitConfig, c.want)
		}
		if err := os.WriteFile(runs.config, []byte(c.change+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := daemon.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "systemctl restart") {
			t.Errorf("reload: %s\n%v; want %s", c.change, err, c.want)
		}
	}
}

// A start that fails for what may pass is no matter of the config: the unit has to try again.
func TestAStartThatFailsForWhatMayPassIsTriedAgain(t *testing.T) {
	b := newBox(t)
	text, err := os.ReadFile(b.config)
	if err != nil {
		t.Fatal(err)
	}
	b.start(t)
	if exit, line := b.tryStart(t, string(text)); exit != exitError || !strings.Contains(line, "is in use by the rocastd with PID") {
		t.Errorf("beside another daemon: exit %d, %s", exit, line)
	}
	dir := t.TempDir()
	beside := fmt.Sprintf("ports: [eth1]\nsocket: %s\nstateDir: %s\n", filepath.Join(dir, "rocast.sock"), filepath.Join(dir, "state"))
	if exit, line := b.tryStart(t, beside); exit != exitError || strings.Count(line, "open port eth1: ") != 1 {
		t.Errorf("beside another daemon on the same port: exit %d, %s", exit, line)
	}
}

// A path that cannot be used yet, because its disk is not mounted, is read-only or belongs to
// another user, is not a mistake of the config. The kernel makes no directory in /proc and /sys for
// anyone.
func TestAPathThatMayBecomeUsableIsTriedAgain(t *testing.T) {
	b := newBox(t)
	dir := t.TempDir()
	for _, c := range []struct{ state, socket, want string }{
		{"/proc/rocast", filepath.Join(dir, "socket"), "create the state directory: mkdir /proc/rocast: "},
		{filepath.Join(dir, "state"), "/sys/rocast/socket", "open the socket /sys/rocast/socket: "},
	} {
		config := fmt.Sprintf("ports: [eth1]\nstateDir: %s\nsocket: %s\n", c.state, c.socket)
		if exit, line := b.tryStart(t, config); exit != exitError || !strings.Contains(line, c.want) {
			t.Errorf("exit %d, %s; want %d, %s", exit, line, exitError, c.want)
		}
	}
}

// What hinders a start now, and may pass, is found beforehand, too: by --check, and by a reload,
// which would advise a restart that takes the box down.
func TestAPathThatCannotBeUsedNowIsFoundBeforehand(t *testing.T) {
	b, runs := newBox(t), newBox(t)
	daemon := client.New(runs.socket)
	dir := t.TempDir()
	fixed := filepath.Join(dir, "fixed")
	full := filepath.Join(fixed, "full")
	for _, d := range []string{filepath.Join(full, "groups"), filepath.Join(fixed, "unlocked", "groups")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(full, "lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flags := range []uintptr{unix.MS_BIND, unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY} {
		if err := unix.Mount(fixed, fixed, "", flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(fixed, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "away"), link); err != nil {
		t.Fatal(err)
	}
	notes := filepath.Join(dir, "notes")
	if err := os.Mkdir(notes, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "away"), filepath.Join(notes, "addresses")); err != nil {
		t.Fatal(err)
	}
	runs.start(t)
	runs.ignoreNotices(t)
	const readOnly = ": read-only file system; let the disk be written (mount -o remount,rw), or write another "
	dangling := " is a symbolic link to " + dir + "/away, which does not exist; make that directory or mount its disk, or write another "
	for _, c := range []struct{ change, want string }{
		{"stateDir: " + fixed, "create the state directory: mkdir " + fixed + "/groups" + readOnly + "stateDir into the config"},
		{"stateDir: " + fixed + "/a/b", "create the state directory: mkdir " + fixed + "/a" + readOnly + "stateDir into the config"},
		{"stateDir: " + fixed + "/unlocked", "create the state directory: mkdir " + fixed + "/unlocked/lock" + readOnly + "stateDir into the config"},
		{"stateDir: " + link, "create the state directory: " + link + dangling + "stateDir into the config"},
		{"stateDir: " + link + "/below", "create the state directory: " + link + dangling + "stateDir into the config"},
		{"stateDir: " + notes, "create the state directory: " + notes + "/addresses" + dangling + "stateDir into the config"},
		{"socket: " + fixed + "/s", "open the socket " + fixed + "/s: mkdir " + fixed + "/s" + readOnly + "socket into the config"},
		{"socket: " + fixed + "/new/s", "open the socket " + fixed + "/new/s: mkdir " + fixed + "/new" + readOnly + "socket into the config"},
		{"socket: " + link + "/s", "open the socket " + link + "/s: " + link + dangling + "socket into the config"},
		{"stateDir: " + full, ""}, // its groups are restored
	} {
		config := "ports: [eth1]\n" + c.change + "\n"
		for _, key := range []string{"socket", "stateDir"} {
			if !strings.Contains(config, key+":") {
				config += fmt.Sprintf("%s: %s\n", key, filepath.Join(dir, key))
			}
		}
		if err := errors.Join(os.WriteFile(b.config, []byte(config), 0o600), os.WriteFile(runs.config, []byte(config), 0o600)); err != nil {
			t.Fatal(err)
		}
		exit, line := b.check(t)
		if c.want == "" {
			if exit != exitOK {
				t.Errorf("--check: %s\nexit %d, %s", c.change, exit, line)
			}
			continue
		}
		if exit != exitConfig || !strings.Contains(line, c.want) {
			t.Errorf("--check: %s\nexit %d, %s; want %s", c.change, exit, line, c.want)
		}
		if exit, line := b.tryStart(t, config); exit != exitError || !strings.Contains(line, c.want) {
			t.Errorf("%s\nexit %d, %s; want %d, %s", c.change, exit, line, exitError, c.want)
		}
		if _, err := daemon.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("reload: %s\n%v; want %s", c.change, err, c.want)
		}
	}
}

// A path of the config is a mistake only if no mount, remount or right can make it usable.
func TestWhichPathsAreMistakes(t *testing.T) {
	for errno, want := range map[unix.Errno]bool{
		unix.ENOTDIR: true, unix.EISDIR: true, unix.ENAMETOOLONG: true, unix.ELOOP: true,
		unix.ENOENT: false, unix.EROFS: false, unix.EACCES: false, unix.EPERM: false, unix.ENOSPC: false, unix.EIO: false,
	} {
		err := aboutPath(fmt.Errorf("create the state directory: %w", &os.PathError{Op: "mkdir", Path: "/x", Err: errno}))
		if got := errors.As(err, new(mistake)); got != want || !errors.Is(err, errno) {
			t.Errorf("%v is a mistake: %v, want %v", err, got, want)
		}
	}
}

// An XDP program of somebody else hinders a start, and --check says so. rocastd's own does not: a
// config is checked while it runs. The start is tried again, because the program may go.
func TestACheckFindsAStrangersProgram(t *testing.T) {
	b := newBox(t)
	running := b.start(t)
	if exit, line := b.check(t); exit != exitOK {
		t.Errorf("beside the daemon: exit %d, %s", exit, line)
	}
	if got := running.end(t, unix.SIGTERM); got != "exit status 0" {
		t.Errorf("stopped: %s", got)
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "stranger", Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	err = b.Do(func() error {
		eth2, err := net.InterfaceByName("eth2")
		if err != nil {
			return err
		}
		attached, err := link.AttachXDP(link.XDPOptions{Program: program, Interface: eth2.Index, Flags: link.XDPGenericMode})
		if err == nil {
			t.Cleanup(func() { attached.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `open port eth2: XDP program "stranger" (id `
	if exit, line := b.check(t); exit != exitConfig || !strings.Contains(line, want) {
		t.Errorf("--check: exit %d, %s; want %s", exit, line, want)
	}
}
