//go:build softroce

package softroce

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// systemLimit bounds a story on a box that is a whole Debian. Emulated, on a machine that does
// other things too, it is many times slower than it is elsewhere.
const systemLimit = 20 * time.Minute

// systems are the releases of Debian that the box is tested with, and the features that their
// kernels lack.
var systems = []struct {
	release string
	missing []string
}{
	{"bookworm", missing61},
	{"trixie", missing612},
}

// TestSystem installs the package into a Debian that has just booted, and does with the service
// what an operator does. The box is rebooted, and upgraded, in the middle of transfers. With -short
// it uses one release.
func TestSystem(t *testing.T) {
	old, next := makeDeb(t, "v1.0.0"), makeDeb(t, "v1.1.0")
	for i, system := range systems {
		if i == 0 || !testing.Short() {
			t.Run(system.release, func(t *testing.T) { playSystem(t, system.release, system.missing, old, next) })
		}
	}
}

func playSystem(t *testing.T, release string, missing []string, old, next string) {
	l := openLab(t, Config{Kernel: "6.1", Guests: 4, MTU: MTU1024, System: release})
	s := &stage{Lab: l, judge: newJudge(l)}
	b := systemOf(s)
	must(t, b.connect(testContext(t, systemLimit), l))
	if !t.Run("install", func(t *testing.T) { s.install(t, testContext(t, systemLimit), old, missing) }) {
		return
	}
	for _, story := range []story{
		{"write", true, storyWrite},
		{"loss on a leg", true, storyLegLoss},
		{"perftest -R", true, storySystemPerftest},
		{"reload", true, storyReload},
		{"kill -9", true, storySystemKill},
		{"upgrade", true, func(t *testing.T, ctx context.Context, s *stage) string { return storyUpgrade(t, ctx, s, next) }},
		{"reboot", true, storyReboot},
	} {
		t.Log(s.playWithin(t, systemLimit, b.Kernel, story))
	}
	t.Run("removal", func(t *testing.T) { s.uninstall(t, testContext(t, systemLimit)) })
}

// makeDeb makes the packages of this tree, and returns the path of rocast's .deb.
func makeDeb(t *testing.T, version string) string { return makeDebOf(t, "rocast", version) }

// makeDebOf is makeDeb for another of the packages, which may be made for several kinds of CPU.
func makeDebOf(t *testing.T, name, version string) string {
	t.Helper()
	build := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "make", "-s", "package", "BUILD="+build, "VERSION="+version)
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make package: %v\n%s", err, out)
	}
	found, err := filepath.Glob(filepath.Join(build, "packages", name+"_*_amd64.deb"))
	if err != nil || len(found) != 1 {
		t.Fatalf("make package made %q, %v", found, err)
	}
	return found[0]
}

func systemOf(s *stage) *System { return s.Box.(*System) }

// The network of the box, as the files of systemd-networkd have it: a bridge with an address.
var networkFiles = map[string]string{
	"br0.netdev":    "[NetDev]\nName=br0\nKind=bridge\nMACAddress=02:00:0a:4d:00:fe\n[Bridge]\nMulticastSnooping=no\n",
	"br0.network":   "[Match]\nName=br0\n[Network]\nAddress=" + boxAddr + "/24\nIPv6AcceptRA=no\n",
	"ports.network": "[Match]\nName=eth1 eth2 eth3 eth4\n[Network]\nBridge=br0\n",
}

// connect configures the network of the box, so that it is there after a reboot too, and returns
// when the hosts reach the box.
func (b *System) connect(ctx context.Context, l *Lab) error {
	for name, content := range networkFiles {
		if err := b.Put(ctx, "/etc/systemd/network/"+name, []byte(content)); err != nil {
			return err
		}
	}
	_, err := b.Run(ctx, "systemctl", "enable", "--now", "systemd-networkd")
	return errors.Join(err, reachable(ctx, l))
}

// reachable returns when every guest has had an answer from the box.
func reachable(ctx context.Context, l *Lab) error {
	for _, g := range l.Guests {
		if _, err := g.Run(ctx, "dash", "-c", "until ping -c 1 -W 1 "+boxAddr+"; do :; done"); err != nil {
			return err
		}
	}
	return nil
}

// shell runs a shell script in the box, up to the first command that fails.
func (b *System) shell(ctx context.Context, script string) (string, error) {
	out, err := b.Run(ctx, "sh", "-ec", script)
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", script, err, out)
	}
	return strings.TrimSpace(out), err
}

func (b *System) sh(t *testing.T, ctx context.Context, script string) string {
	t.Helper()
	out, err := b.shell(ctx, script)
	must(t, err)
	return out
}

// property is a property of the service, as systemd knows it.
func (b *System) property(t *testing.T, ctx context.Context, name string) string {
	t.Helper()
	return b.sh(t, ctx, "systemctl show --value -p "+name+" rocastd")
}

// isProperty checks properties of the service.
func (b *System) isProperty(t *testing.T, ctx context.Context, want map[string]string) {
	t.Helper()
	for name, want := range want {
		if got := b.property(t, ctx, name); got != want {
			t.Errorf("%s of the service is %q, want %q", name, got, want)
		}
	}
}

// apt installs or removes packages without a question, and without a network.
const apt = "DEBIAN_FRONTEND=noninteractive apt-get -y "

// copyIn copies a file into the box, and returns its name there.
func (b *System) copyIn(t *testing.T, ctx context.Context, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	must(t, err)
	name := path.Join("/root", filepath.Base(file))
	must(t, b.Put(ctx, name, content))
	return name
}

// install installs the package, starts the service, and checks what systemd says about it.
func (s *stage) install(t *testing.T, ctx context.Context, deb string, missing []string) {
	b := systemOf(s)
	t.Log(b.sh(t, ctx, apt+"install "+b.copyIn(t, ctx, deb)))
	b.isProperty(t, ctx, map[string]string{"ActiveState": "inactive", "UnitFileState": "disabled"}) // the config names the ports first
	b.sh(t, ctx, "sed -i 's/^ports:.*/ports: [eth1, eth2, eth3, eth4]/' /etc/rocast/rocastd.yaml; systemctl enable --now rocastd")
	s.rocast = &rocast{site: inSystem{b}}
	must(t, s.Start(ctx))
	b.isProperty(t, ctx, map[string]string{ // Type=notify: systemctl returns when the daemon is ready
		"ActiveState": "active", "UnitFileState": "enabled", "User": "rocast", "NRestarts": "0",
		"StatusText": "0 groups, 4 of 4 ports are open",
	})
	s.confined(t, ctx)
	s.checkFeatures(t, ctx, boxRun{missing: missing})
	status, err := s.text(ctx, "status")
	must(t, err)
	t.Log(status)
	if !strings.Contains(status, "v1.0.0") || !strings.Contains(status, "4 up") {
		t.Errorf("rocast status says:\n%s", status)
	}
}

// maxExposure is the mark that the unit has to have.
const maxExposure = 3.5

var exposure = regexp.MustCompile(`exposure level for rocastd.service: ([0-9.]+)`)

// confined checks what the running service may do.
func (s *stage) confined(t *testing.T, ctx context.Context) {
	t.Helper()
	b := systemOf(s)
	report := b.sh(t, ctx, "systemd-analyze security --no-pager rocastd")
	mark := exposure.FindStringSubmatch(report)
	if mark == nil {
		t.Fatalf("systemd-analyze security says:\n%s", report)
	}
	if got, err := strconv.ParseFloat(mark[1], 64); err != nil || got > maxExposure {
		t.Errorf("systemd-analyze security: %v, want at most %v; %v\n%s", got, maxExposure, err, report)
	}
	const sysAdmin = 1 << 21
	field := b.sh(t, ctx, "sed -n 's/^CapEff:.//p' /proc/$(systemctl show --value -p MainPID rocastd)/status")
	if effective, err := strconv.ParseUint(field, 16, 64); err != nil || effective&sysAdmin != 0 {
		t.Errorf("rocastd kept CAP_SYS_ADMIN: %q, %v", field, err)
	}
	log := s.daemon.log.String()
	if !strings.Contains(log, `"msg":"ready"`) {
		t.Errorf("the journal has no line of JSON that says ready:\n%s", log)
	}
	for _, word := range []string{"not permitted", "denied", `"level":"error"`} {
		if strings.Contains(log, word) {
			t.Errorf("the journal has %q:\n%s", word, log)
		}
	}
	t.Logf("%s\n%s", mark[0], log)
}

// whileSending does something to the box while the source of a group sends without a pause: it
// writes the memory again and again, until everything is as before. Nothing may be lost.
//
// The source's timeout is 1.1 s, so that the source does not time out while the emulated box is
// busy with something else.
func (s *stage) whileSending(t *testing.T, ctx context.Context, do func() error) string {
	t.Helper()
	spec := ordinary()
	spec.bytes, spec.connect.Timeout = longBytes, 18
	g := s.addGroup(t, ctx, spec)
	transfer := g.transfer("write", messageBytes, longMessages)
	must(t, g.from.StartTransfer(transfer))
	s.reaches(t, ctx, g, 1000)
	done := make(chan error, 1)
	go func() { done <- do() }()
	var longest time.Duration
	for written, last := 1, false; ; written++ {
		result, err := g.from.AwaitTransfer(ctx)
		must(t, err)
		g.succeeded(t, transfer, result)
		longest = max(longest, result.Duration)
		if last {
			g.delivered(t, ctx, longBytes)
			return fmt.Sprintf("%d times 4 MiB written, which took up to %.1f s: hashes equal, QPs live", written, longest.Seconds())
		}
		select {
		case err := <-done:
			must(t, err)
			must(t, s.Start(ctx)) // the next daemon
			last = true
		default:
		}
		must(t, g.from.StartTransfer(transfer))
	}
}

// storySystemPerftest connects unmodified programs by RDMA-CM, once.
func storySystemPerftest(t *testing.T, ctx context.Context, s *stage) string {
	s.cmUp(t, ctx, groupIP, ipv4, perftestPort, "perftest")
	did := s.runPerftest(t, ctx, perftestRRuns[:1])
	s.noGroups(t, ctx)
	return strings.Join(did, "; ")
}

// storyReload takes a port in and gives it up again, and is refused a change that needs a restart.
// The daemon and its group stay.
func storyReload(t *testing.T, ctx context.Context, s *stage) string {
	b := systemOf(s)
	before := b.property(t, ctx, "MainPID")
	sent := s.whileSending(t, ctx, func() error {
		_, err := b.shell(ctx, `cd /etc/rocast
cp rocastd.yaml /root/kept
sed -i 's/^ports: ./&eth0, /' rocastd.yaml
systemctl reload rocastd
rocast port ls | grep '^eth0 '
cp /root/kept rocastd.yaml
systemctl reload rocastd
if rocast port ls | grep '^eth0 '; then exit 1; fi
echo 'mode: generic' >>rocastd.yaml
if systemctl reload rocastd; then exit 1; fi
cp /root/kept rocastd.yaml
systemctl reload rocastd`)
		return err
	})
	b.isProperty(t, ctx, map[string]string{"MainPID": before, "ActiveState": "active", "NRestarts": "0"})
	warnings := b.sh(t, ctx, "journalctl --no-pager -u rocastd -p warning -o cat")
	if !strings.Contains(warnings, "mode changes only at a restart") || strings.Contains(warnings, `"level":"info"`) {
		t.Errorf("the journal's warnings do not name the key whose change was refused, or are none:\n%s", warnings)
	}
	return "a port came and went, a change of mode was refused; " + sent
}

// storySystemKill kills the daemon. systemd starts it again.
func storySystemKill(t *testing.T, ctx context.Context, s *stage) string {
	b := systemOf(s)
	sent := s.whileSending(t, ctx, func() error {
		_, err := b.shell(ctx, "systemctl kill -s KILL rocastd; while [ $(systemctl show --value -p NRestarts rocastd) = 0 ]; do sleep 0.1; done")
		return err
	})
	b.isProperty(t, ctx, map[string]string{"ActiveState": "active", "NRestarts": "1"})
	return "SIGKILL; " + sent
}

// storyUpgrade installs another version of the package.
func storyUpgrade(t *testing.T, ctx context.Context, s *stage, deb string) string {
	b := systemOf(s)
	deb = b.copyIn(t, ctx, deb)
	before := b.property(t, ctx, "MainPID")
	sent := s.whileSending(t, ctx, func() error {
		_, err := b.shell(ctx, apt+"install "+deb)
		return err
	})
	if after := b.property(t, ctx, "MainPID"); after == before || after == "0" {
		t.Errorf("the main process was %s and is %s", before, after)
	}
	b.isProperty(t, ctx, map[string]string{"ActiveState": "active", "UnitFileState": "enabled"})
	status, err := s.text(ctx, "status")
	must(t, err)
	if !strings.Contains(status, "v1.1.0") {
		t.Errorf("after the upgrade rocast status says:\n%s", status)
	}
	if config := b.sh(t, ctx, "cat /etc/rocast/rocastd.yaml"); !strings.Contains(config, "ports: [eth1, eth2, eth3, eth4]\n") {
		t.Errorf("the upgrade has lost the edited config:\n%s", config)
	}
	return "apt-get install of the next version; " + sent
}

// storyReboot reboots the whole box. The source's QP retries for ever. As long as the bridge of the
// new boot has not learned behind which port a member is, its packets have no right port.
func storyReboot(t *testing.T, ctx context.Context, s *stage) string {
	b := systemOf(s)
	s.allowed = []string{"wrong-port"}
	sent := s.whileSending(t, ctx, func() error { return b.Reboot(ctx) })
	b.isProperty(t, ctx, map[string]string{"ActiveState": "active", "NRestarts": "0"})
	return "the box rebooted; " + sent
}

// uninstall removes the package and then its config, and checks what is left. The user stays, as is
// usual in Debian: files that it owned must not become those of another user.
func (s *stage) uninstall(t *testing.T, ctx context.Context) {
	b := systemOf(s)
	t.Log(b.sh(t, ctx, apt+"remove rocast"))
	must(t, s.site.leftovers(ctx))
	if state := b.sh(t, ctx, "systemctl is-active rocastd || :"); state != "inactive" {
		t.Errorf("after the removal the service is %s", state)
	}
	b.sh(t, ctx, "test -s /etc/rocast/rocastd.yaml; test -d /var/lib/rocast")
	must(t, reachable(ctx, s.Lab))
	t.Log(b.sh(t, ctx, apt+"purge rocast"))
	left := b.sh(t, ctx, "find / -xdev -name '*rocast*' -not -path '/root/*' -not -path '/tmp/*'")
	if left := strings.Fields(left); len(left) > 0 {
		t.Errorf("after the purge there are %q", left)
	}
	b.sh(t, ctx, "getent passwd rocast")
	if state := b.sh(t, ctx, "systemctl is-system-running"); state != "running" {
		t.Errorf("after the purge the system is %s", state)
	}
}

// inSystem is the site of rocast as a package installs it.
type inSystem struct{ box *System }

func (p inSystem) path(name string) string {
	if name == "socket" {
		return "/run/rocast/rocast.sock"
	}
	return path.Join("/root", name)
}

func (p inSystem) write(ctx context.Context, name, content string) error {
	return p.box.Put(ctx, p.path(name), []byte(content))
}

// start waits for the daemon that systemd starts by itself.
func (p inSystem) start(ctx context.Context) (*daemon, error) {
	d := &daemon{log: journal(p), exited: make(chan struct{}), signal: func(syscall.Signal) error { return errors.ErrUnsupported }}
	_, err := p.box.Run(ctx, "sh", "-c", "until rocast port ls >/dev/null 2>&1; do sleep 0.1; done")
	if err != nil {
		err = fmt.Errorf("rocastd is not ready: %w\n%s", err, d.log)
	}
	return d, err
}

func (p inSystem) run(ctx context.Context, program string, args ...string) (string, error) {
	out, err := p.box.Run(ctx, append([]string{program}, args...)...)
	if err != nil {
		err = fmt.Errorf("%w%s", err, out)
	}
	return out, err
}

// leftovers looks at the box as a user does that has stopped the service.
func (p inSystem) leftovers(ctx context.Context) error {
	var errs []error
	for _, look := range []struct {
		command string
		want    func(line string) bool // of a line that may be there
	}{
		{"ip -oneline link", func(line string) bool { return !strings.Contains(line, "xdp") }},
		{"ip -oneline -4 address show dev br0", func(line string) bool { return strings.Contains(line, boxAddr+"/") }},
		{"tc qdisc", func(line string) bool { return !strings.Contains(line, "clsact") && !strings.Contains(line, "ingress") }},
		{"ls /sys/fs/bpf", func(line string) bool { return line == "" }},
		{"ls -d /run/rocast 2>/dev/null || :", func(line string) bool { return line == "" }},
		{"pidof rocastd || :", func(line string) bool { return line == "" }},
	} {
		out, err := p.box.Run(ctx, "sh", "-c", look.command)
		errs = append(errs, err)
		if lines := strings.Split(strings.TrimSpace(out), "\n"); slices.ContainsFunc(lines, func(line string) bool { return !look.want(line) }) {
			errs = append(errs, fmt.Errorf("something is left: %s:\n%s", look.command, out))
		}
	}
	return errors.Join(errs...)
}

// journal is the end of the service's log.
type journal struct{ box *System }

func (j journal) String() string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := j.box.Run(ctx, "journalctl", "--no-pager", "-u", "rocastd", "-n", "100", "-o", "cat")
	if err != nil {
		return err.Error()
	}
	return out
}
