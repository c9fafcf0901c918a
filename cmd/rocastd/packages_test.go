package main

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// packages are what make package makes.
type packages struct {
	library, libraryRPM, python string
	amd64, arm64                programs
}

// programs are the packages with programs for one CPU.
type programs struct{ deb, rpm, edge, edgeRPM string }

// making is a make package that runs.
type making struct {
	cmd    *exec.Cmd
	build  string
	output bytes.Buffer
}

// startMaking starts make with a goal in a copy of the tree.
func startMaking(t *testing.T, tree, umask, goal string) *making {
	t.Helper()
	m := &making{build: t.TempDir()}
	m.cmd = exec.CommandContext(t.Context(), "sh", "-c", "umask "+umask+"; exec make -s "+goal+" BUILD="+m.build+" VERSION=v1.2.3-rc1-4-gabc COMMIT=0123456789abcdef")
	m.cmd.Dir = tree
	m.cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000")
	m.cmd.Stdout, m.cmd.Stderr = &m.output, &m.output
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *making) wait(t *testing.T) {
	t.Helper()
	if err := m.cmd.Wait(); err != nil {
		t.Fatalf("%v: %v\n%s", m.cmd.Args, err, m.output.Bytes())
	}
}

// made waits until the packages are there.
func (m *making) made(t *testing.T) packages {
	t.Helper()
	m.wait(t)
	one := func(pattern string) string {
		found, err := filepath.Glob(filepath.Join(m.build, "packages", pattern))
		if err != nil || len(found) != 1 {
			t.Fatalf("%s: %q, %v", pattern, found, err)
		}
		return found[0]
	}
	of := func(debCPU, rpmCPU string) programs {
		return programs{
			deb: one("rocast_1.2.3~rc1+4.gabc-1_" + debCPU + ".deb"), rpm: one("rocast-1.2.3~rc1+4.gabc-1." + rpmCPU + ".rpm"),
			edge: one("rocast-edge_1.2.3~rc1+4.gabc-1_" + debCPU + ".deb"), edgeRPM: one("rocast-edge-1.2.3~rc1+4.gabc-1." + rpmCPU + ".rpm"),
		}
	}
	return packages{
		python:  one("python3-rocast_1.2.3~rc1+4.gabc-1_all.deb"),
		library: one("librocast_1.2.3~rc1+4.gabc-1_amd64.deb"), libraryRPM: one("librocast-1.2.3~rc1+4.gabc-1.x86_64.rpm"),
		amd64: of("amd64", "x86_64"), arm64: of("arm64", "aarch64"),
	}
}

// output runs a program of this machine.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	var errs bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stderr = &errs
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s%s", name, args, err, text, errs.Bytes())
	}
	return string(text)
}

// copyTree copies what git would commit.
func copyTree(t *testing.T) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "elsewhere")
	output(t, "sh", "-c", `mkdir "$0" && cd ../.. && git ls-files -z -co --exclude-standard | tar -c --null --ignore-failed-read -T - | tar -x -C "$0"`, to)
	return to
}

// What is installed depends on the commit alone: not on where the tree lies or who builds it.
func TestThePackages(t *testing.T) {
	if testing.Short() {
		t.Skip("building packages takes long")
	}
	for _, need := range []string{"make", "git", "dpkg-deb"} {
		if _, err := exec.LookPath(need); err != nil {
			t.Skip(err)
		}
	}
	elsewhere := copyTree(t)
	startMaking(t, "../..", "022", "build cpus").wait(t) // what both compile, they find in the cache
	first, second := startMaking(t, "../..", "022", "package"), startMaking(t, elsewhere, "077", "package")
	here, there := first.made(t), second.made(t)
	for _, pair := range [][2]string{
		{here.library, there.library}, {here.python, there.python}, {here.libraryRPM, there.libraryRPM},
		{here.amd64.deb, there.amd64.deb}, {here.amd64.rpm, there.amd64.rpm},
		{here.amd64.edge, there.amd64.edge}, {here.amd64.edgeRPM, there.amd64.edgeRPM},
		{here.arm64.deb, there.arm64.deb}, {here.arm64.rpm, there.arm64.rpm},
		{here.arm64.edge, there.arm64.edge}, {here.arm64.edgeRPM, there.arm64.edgeRPM},
	} {
		a, err := os.ReadFile(pair[0])
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(pair[1])
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs when it is built elsewhere", filepath.Base(pair[0]))
		}
	}
	t.Run("deb", func(t *testing.T) { checkDeb(t, here.amd64.deb, elf.EM_X86_64) })
	t.Run("deb of arm64", func(t *testing.T) { checkDeb(t, here.arm64.deb, elf.EM_AARCH64) })
	t.Run("library", func(t *testing.T) { checkLibrary(t, here.library) })
	t.Run("python", func(t *testing.T) { checkPython(t, here.python) })
	t.Run("edge", func(t *testing.T) { checkEdge(t, here.amd64.edge, elf.EM_X86_64) })
	t.Run("edge of arm64", func(t *testing.T) { checkEdge(t, here.arm64.edge, elf.EM_AARCH64) })
	t.Run("programs", func(t *testing.T) { checkPrograms(t, here.amd64.deb) })
	t.Run("upgrade", func(t *testing.T) { checkUpgrade(t, here.amd64.deb) })
	t.Run("rpm", func(t *testing.T) {
		if _, err := exec.LookPath("rpm"); err != nil {
			t.Skip(err)
		}
		if got, want := output(t, "rpm", "-qp", "--configfiles", here.amd64.rpm), "/etc/rocast/rocastd.yaml\n"; got != want {
			t.Errorf("the config files are %q, want %q", got, want)
		}
		if got, want := output(t, "rpm", "-qp", "--qf", "[%{FILENAMES} %{FILEFLAGS:fflags}\n]", here.amd64.rpm), "/etc/rocast/rocastd.yaml cn\n"; !strings.Contains(got, want) {
			t.Errorf("an upgrade replaces an edited config: %s", got)
		}
		checkRPM(t, here.amd64.rpm, elsewhere)
	})
	t.Run("lintian", func(t *testing.T) {
		if _, err := exec.LookPath("lintian"); err != nil {
			t.Skip(err)
		}
		for _, deb := range []string{here.amd64.deb, here.arm64.deb, here.amd64.edge} {
			if got := output(t, "lintian", "--fail-on", "none", deb); got != "" {
				t.Errorf("lintian:\n%s", got)
			}
		}
	})
}

// checkLibrary compiles a program with what the package of librocast has.
func checkLibrary(t *testing.T, deb string) {
	root := t.TempDir()
	output(t, "dpkg-deb", "-x", deb, root)
	for field, want := range map[string]string{"Package": "librocast", "Version": "1.2.3~rc1+4.gabc-1", "Depends": "libc6, libibverbs1"} {
		if got := strings.TrimSpace(output(t, "dpkg-deb", "-f", deb, field)); got != want {
			t.Errorf("%s is %q, want %q", field, got, want)
		}
	}
	found, err := filepath.Glob(filepath.Join(root, "usr/lib/*/pkgconfig/rocast.pc"))
	if err != nil || len(found) != 1 {
		t.Fatalf("rocast.pc: %q, %v", found, err)
	}
	pc, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	libdir := filepath.Dir(filepath.Dir(found[0]))
	for _, want := range []string{"libdir=" + strings.TrimPrefix(libdir, root) + "\n", "Version: 1.2.3~rc1+4.gabc\n", "Libs: -L${libdir} -lrocast\n"} {
		if !strings.Contains(string(pc), want) {
			t.Errorf("rocast.pc lacks %q:\n%s", want, pc)
		}
	}
	program := filepath.Join(root, "broadcast")
	output(t, "gcc", "-Wall", "-Wextra", "-Werror", "-I", filepath.Join(root, "usr/include"), "../../examples/librocast/broadcast.c", "-L", libdir, "-lrocast", "-o", program)
	if got := output(t, "env", "LD_LIBRARY_PATH="+libdir, "sh", "-c", program+" 2>&1 || true"); !strings.Contains(got, "the box is not named, and DNS names none") {
		t.Errorf("the program says %q", got)
	}
	if got := output(t, "sh", "-c", "zcat "+filepath.Join(root, "usr/share/man/man3/rocast.3.gz")); !strings.Contains(got, "rocast_join") {
		t.Error("the manual page does not name rocast_join")
	}
	copier := filepath.Join(root, "usr/bin/rocast-cp")
	if got := output(t, "sh", "-c", copier+" send x --group g --members 2 --box 127.0.0.1:1 2>&1 || true"); !strings.Contains(got, "no RDMA device has") {
		t.Errorf("rocast-cp says %q", got)
	}
	if got := output(t, "sh", "-c", "zcat "+filepath.Join(root, "usr/share/man/man1/rocast-cp.1.gz")); !strings.Contains(got, "resume") {
		t.Error("the manual page of rocast-cp does not name --resume")
	}
}

// checkPython imports what the package for Python has.
func checkPython(t *testing.T, deb string) {
	root := t.TempDir()
	output(t, "dpkg-deb", "-x", deb, root)
	if got, want := strings.TrimSpace(output(t, "dpkg-deb", "-f", deb, "Depends")), "python3 (>= 3.11), librocast"; got != want {
		t.Errorf("it depends on %q, want %q", got, want)
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	path := "PYTHONPATH=" + filepath.Join(root, "usr/lib/python3/dist-packages")
	if got := output(t, "env", path, "python3", "-c", "import rocast; print(rocast.join.__name__)"); got != "join\n" {
		t.Errorf("it prints %q", got)
	}
}

// files are the files of a package, with their modes and owners.
func files(t *testing.T, deb string) (list []string) {
	t.Helper()
	for line := range strings.Lines(output(t, "dpkg-deb", "-c", deb)) {
		f := strings.Fields(line)
		if !strings.HasSuffix(f[5], "/") {
			list = append(list, f[0]+" "+f[1]+" "+strings.TrimPrefix(f[5], "."))
		}
	}
	return list
}

// checkEdge looks into the package for hosts with an edge. It runs the program if this machine can.
func checkEdge(t *testing.T, deb string, cpu elf.Machine) {
	got := files(t, deb)
	want := []string{
		"-rw-r--r-- root/root /etc/rocast/edge.conf",
		"-rw-r--r-- root/root /usr/lib/systemd/system/rocast-edge.service",
		"-rwxr-xr-x root/root /usr/sbin/rocast-edge",
		"-rw-r--r-- root/root /usr/share/doc/rocast-edge/changelog.Debian.gz",
		"-rw-r--r-- root/root /usr/share/doc/rocast-edge/copyright",
		"-rw-r--r-- root/root /usr/share/doc/rocast-edge/edge.md",
		"-rw-r--r-- root/root /usr/share/lintian/overrides/rocast-edge",
		"-rw-r--r-- root/root /usr/share/man/man8/rocast-edge.8.gz",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got, want := output(t, "dpkg-deb", "-I", deb, "conffiles"), "/etc/rocast/edge.conf\n"; got != want {
		t.Errorf("conffiles are %q, want %q", got, want)
	}
	root := t.TempDir()
	output(t, "dpkg-deb", "-x", deb, root)
	program := filepath.Join(root, "usr/sbin/rocast-edge")
	checkStatic(t, program, cpu)
	if cpu == elf.EM_X86_64 {
		if got := output(t, program, "--version"); !strings.Contains(got, "v1.2.3-rc1-4-gabc") {
			t.Errorf("rocast-edge --version says %q", got)
		}
	}
	if got := output(t, "gzip", "-dc", filepath.Join(root, "usr/share/man/man8/rocast-edge.8.gz")); !strings.HasPrefix(got, ".TH ROCAST-EDGE 8 ") {
		t.Errorf("the man page begins with %.50q", got)
	}
	output(t, "sh", "-n", filepath.Join(root, "etc/rocast/edge.conf"))
}

// checkStatic fails the test if a program needs libraries of the machine, or another CPU.
func checkStatic(t *testing.T, path string, cpu elf.Machine) {
	t.Helper()
	program, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	if program.Machine != cpu {
		t.Errorf("%s is for %v, want %v", path, program.Machine, cpu)
	}
	if libraries, err := program.ImportedLibraries(); err == nil && len(libraries) > 0 {
		t.Errorf("%s needs %q", path, libraries)
	}
	if slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Errorf("%s is not static", path)
	}
}

// checkDeb looks into the package for boxes.
func checkDeb(t *testing.T, deb string, cpu elf.Machine) {
	got := files(t, deb)
	want := []string{
		"-rw-r--r-- root/root /etc/rocast/rocastd.yaml",
		"-rwxr-xr-x root/root /usr/bin/rocast",
		"-rw-r--r-- root/root /usr/lib/systemd/system/rocastd.service",
		"-rw-r--r-- root/root /usr/lib/sysusers.d/rocast.conf",
		"-rwxr-xr-x root/root /usr/sbin/rocastd",
		"-rw-r--r-- root/root /usr/share/bash-completion/completions/rocast",
		"-rw-r--r-- root/root /usr/share/doc/rocast/README.md",
		"-rw-r--r-- root/root /usr/share/doc/rocast/changelog.Debian.gz",
		"-rw-r--r-- root/root /usr/share/doc/rocast/copyright",
		"-rw-r--r-- root/root /usr/share/doc/rocast/docs/configure.md",
		"-rw-r--r-- root/root /usr/share/doc/rocast/docs/edge.md",
		"-rw-r--r-- root/root /usr/share/doc/rocast/docs/evaluation.md",
		"-rw-r--r-- root/root /usr/share/doc/rocast/docs/host.md",
		"-rw-r--r-- root/root /usr/share/doc/rocast/docs/install.md",
		"-rw-r--r-- root/root /usr/share/doc/rocast/docs/lab.md",
		"-rw-r--r-- root/root /usr/share/doc/rocast/docs/merging.md",
		"-rw-r--r-- root/root /usr/share/doc/rocast/docs/operate.md",
		"-rw-r--r-- root/root /usr/share/doc/rocast/docs/reference.md",
		"-rw-r--r-- root/root /usr/share/doc/rocast/docs/tree.md",
		"-rw-r--r-- root/root /usr/share/doc/rocast/docs/troubleshoot.md",
		"-rw-r--r-- root/root /usr/share/doc/rocast/docs/uses.md",
		"-rw-r--r-- root/root /usr/share/doc/rocast/docs/wire.md",
		"-rw-r--r-- root/root /usr/share/doc/rocast/rocastd.yaml",
		"-rw-r--r-- root/root /usr/share/fish/vendor_completions.d/rocast.fish",
		"-rw-r--r-- root/root /usr/share/lintian/overrides/rocast",
		"-rw-r--r-- root/root /usr/share/man/man1/rocast.1.gz",
		"-rw-r--r-- root/root /usr/share/man/man8/rocastd.8.gz",
		"-rw-r--r-- root/root /usr/share/rocast/alerts.yaml",
		"-rw-r--r-- root/root /usr/share/rocast/dashboard.json",
		"-rw-r--r-- root/root /usr/share/rocast/openapi.yaml",
		"-rw-r--r-- root/root /usr/share/zsh/vendor-completions/_rocast",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got, want := output(t, "dpkg-deb", "-I", deb, "conffiles"), "/etc/rocast/rocastd.yaml\n"; got != want {
		t.Errorf("conffiles are %q, want %q", got, want)
	}
	for field, want := range map[string]string{"Package": "rocast", "Version": "1.2.3~rc1+4.gabc-1", "Depends": "default-systemd-sysusers | systemd-sysusers"} {
		if got := strings.TrimSpace(output(t, "dpkg-deb", "-f", deb, field)); got != want {
			t.Errorf("%s is %q, want %q", field, got, want)
		}
	}
	root := t.TempDir()
	output(t, "dpkg-deb", "-x", deb, root)
	for _, path := range []string{"usr/bin/rocast", "usr/sbin/rocastd"} {
		checkStatic(t, filepath.Join(root, path), cpu)
	}
}

// checkPrograms runs what is in the package.
func checkPrograms(t *testing.T, deb string) {
	root := t.TempDir()
	output(t, "dpkg-deb", "-x", deb, root)
	version := output(t, filepath.Join(root, "usr/bin/rocast"), "version", "--socket", "/nowhere")
	if want := "v1.2.3-rc1-4-gabc (commit 0123456789ab, go1."; !strings.Contains(version, want) {
		t.Errorf("rocast version says %q, want %q", version, want)
	}
	for page, want := range map[string]string{"man1/rocast.1.gz": ".TH ROCAST 1 ", "man8/rocastd.8.gz": ".TH ROCASTD 8 "} {
		if got := output(t, "gzip", "-dc", filepath.Join(root, "usr/share/man", page)); !strings.HasPrefix(got, want) {
			t.Errorf("%s begins with %.50q", page, got)
		}
	}
	output(t, "bash", "-n", filepath.Join(root, "usr/share/bash-completion/completions/rocast"))
	if _, err := exec.LookPath("promtool"); err == nil {
		output(t, "promtool", "check", "rules", filepath.Join(root, "usr/share/rocast/alerts.yaml"))
		output(t, "promtool", "test", "rules", "../../packaging/alerts_test.yaml")
	}
}

// checkUpgrade installs the package over itself, and then one whose config is another. The edited
// config survives both.
func checkUpgrade(t *testing.T, deb string) {
	if os.Geteuid() != 0 {
		t.Skip("dpkg needs root")
	}
	root, work := t.TempDir(), t.TempDir()
	output(t, "sh", "-c", `mkdir -p "$0/var/lib/dpkg/info" "$0/var/lib/dpkg/updates" && : >"$0/var/lib/dpkg/status"`, root)
	dpkg := func(args ...string) {
		t.Helper()
		output(t, "dpkg", append([]string{"--root=" + root, "--log=/dev/null", "--force-script-chrootless", "--force-depends", "--force-confdef", "--force-confold"}, args...)...)
	}
	small, newer := filepath.Join(work, "small.deb"), filepath.Join(work, "newer.deb")
	output(t, "sh", "-c", `dpkg-deb -R "$0" "$1" && : >"$1/usr/sbin/rocastd" >"$1/usr/bin/rocast" && dpkg-deb -Znone -b "$1" "$2" &&
		echo "# new" >>"$1/etc/rocast/rocastd.yaml" && sed -i s/^Version:.*/Version:\ 9/ "$1/DEBIAN/control" &&
		dpkg-deb -Znone -b "$1" "$3"`, deb, filepath.Join(work, "tree"), small, newer)
	dpkg("-i", small)
	config := filepath.Join(root, "etc/rocast/rocastd.yaml")
	const edited = "ports: [enp1s0]\n"
	if err := os.WriteFile(config, []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(root, "var/lib/rocast/g1")
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, deb := range []string{small, newer} {
		dpkg("-i", deb)
		if text, err := os.ReadFile(config); err != nil || string(text) != edited {
			t.Errorf("after %s the config is %q, %v", filepath.Base(deb), text, err)
		}
	}
	dpkg("-r", "rocast")
	for _, path := range []string{config, state} {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("after the removal: %v", err)
		}
	}
	dpkg("-P", "rocast")
	for _, path := range []string{config, state} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("after the purge %s is still there", path)
		}
	}
}

// The scripts of a package touch the service only where systemd runs, and not in an image that is
// being built.
func TestTheScriptsOfAPackageAreQuietWithoutSystemd(t *testing.T) {
	bin := t.TempDir()
	for _, program := range []string{"systemctl", "systemd-sysusers", "rocast-edge"} {
		if err := os.WriteFile(filepath.Join(bin, program), []byte("#!/bin/sh\necho "+program+" \"$@\"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run := func(script, check string, args ...string) string {
		text, err := os.ReadFile("../../packaging/scripts/" + script)
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.ReplaceAll(text, []byte("/usr/sbin/"), nil)
		if !bytes.Contains(text, []byte("/run/systemd/system")) {
			t.Fatalf("%s does not look for systemd", script)
		}
		cmd := exec.Command("sh", append([]string{"-c", strings.ReplaceAll(string(text), "/run/systemd/system", check), script}, args...)...)
		cmd.Env = []string{"PATH=" + bin + ":/usr/bin:/bin"}
		if check == "/" && script == "postinstall" && len(args) == 3 {
			cmd.Env = append(cmd.Env, "DPKG_ROOT="+args[2])
		}
		said, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s %q: %v\n%s", script, args, err, said)
		}
		return strings.ReplaceAll(string(said), "\n", ";")
	}
	const user = "systemd-sysusers rocast.conf;"
	for _, c := range []struct {
		script string
		args   []string
		want   string
	}{
		{"postinstall", []string{"configure", ""}, user + "systemctl daemon-reload;"},
		{"postinstall", []string{"configure", "1.0"}, user + "systemctl daemon-reload;systemctl try-restart rocastd.service;"},
		{"postinstall", []string{"1"}, user + "systemctl daemon-reload;"},
		{"postinstall", []string{"2"}, user + "systemctl daemon-reload;systemctl try-restart rocastd.service;"},
		{"postinstall", []string{"abort-upgrade", "1.0"}, ""},
		{"preremove", []string{"remove"}, "systemctl --no-reload disable --now rocastd.service;"},
		{"preremove", []string{"0"}, "systemctl --no-reload disable --now rocastd.service;"},
		{"preremove", []string{"upgrade", "2.0"}, ""},
		{"preremove", []string{"1"}, ""},
		{"edge/postinstall", []string{"configure", ""}, "systemctl daemon-reload;"},
		{"edge/postinstall", []string{"2"}, "systemctl daemon-reload;systemctl try-restart rocast-edge.service;"},
		{"edge/postinstall", []string{"abort-upgrade", "1.0"}, ""},
		{"edge/preremove", []string{"remove"}, "systemctl --no-reload disable --now rocast-edge.service;rocast-edge remove;"},
		{"edge/preremove", []string{"upgrade", "2.0"}, ""},
		{"edge/preremove", []string{"1"}, ""},
		{"edge/postremove", []string{"0"}, "systemctl daemon-reload;"},
		{"edge/postremove", []string{"upgrade", "2.0"}, ""},
		{"postremove", []string{"remove"}, "systemctl daemon-reload;"},
		{"postremove", []string{"upgrade", "2.0"}, ""},
		{"postremove", []string{"1"}, ""},
	} {
		if got := run(c.script, "/", c.args...); got != c.want {
			t.Errorf("%s %q\ngot  %s\nwant %s", c.script, c.args, got, c.want)
		}
		made, _, _ := strings.Cut(c.want, "systemctl")
		if got := run(c.script, "/nowhere", c.args...); got != made {
			t.Errorf("%s %q without systemd: %s", c.script, c.args, got)
		}
	}
	if got := run("postinstall", "/", "configure", "1.0", "/image"); got != "" {
		t.Errorf("in an image: %s", got)
	}
}
