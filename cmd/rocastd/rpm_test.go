package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// installsRPM installs $0, edits the config, upgrades to $1 and removes the package, in a root that
// is this machine's with a layer of its own for all changes. Debian's rpm has to be told that it is
// meant; the packages of this machine are unknown to it.
const installsRPM = `
mount -t tmpfs none "$2"
cp "$0" "$2/old.rpm"
cp "$1" "$2/new.rpm"
cd "$2"
mkdir upper work root
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
for d in proc dev; do mount --rbind /$d root/$d; done
rpm() { command rpm --root "$PWD/root" --force-debian "$@"; }
inside() { chroot root "$@"; }

rpm -i --nodeps old.rpm
echo "user: $(inside getent passwd rocast | cut -d: -f1,5,6)"
echo "differs from the package: $(rpm -V --nodeps rocast)"
echo "version: $(inside /usr/bin/rocast version --socket /nowhere | grep -o 'v[0-9][^ ]*' | head -n 1)"
echo "daemon: $(inside /usr/sbin/rocastd --version | grep -o 'v[0-9][^ ]*' | head -n 1)"

echo 'ports: [enp1s0]' >root/etc/rocast/rocastd.yaml
mkdir -p root/var/lib/rocast/groups
rpm -U --nodeps new.rpm 2>&1 | sed 's/^/upgrade: /'
echo "config: $(cat root/etc/rocast/rocastd.yaml); the new one: $(tail -n 1 root/etc/rocast/rocastd.yaml.rpmnew)"
echo "installed: $(rpm -q rocast | cut -d- -f2)"

rpm -e --nodeps rocast 2>&1 | sed 's/^/removal: /'
echo "config: $(cat root/etc/rocast/rocastd.yaml.rpmsave)"
echo "left: $(find root/usr root/etc root/var/lib -path '*rocast*' | sort | tr '\n' ' ')"
`

// checkRPM installs the package for real, with its scripts: first the one that was made, then a
// newer one with another config and programs that do nothing, which takes less time to build. tree
// is a copy of the tree.
func checkRPM(t *testing.T, rpm, tree string) {
	if os.Geteuid() != 0 {
		t.Skip("rpm needs root")
	}
	for _, need := range []string{"unshare", "rpm", "systemd-sysusers"} {
		if _, err := exec.LookPath(need); err != nil {
			t.Skip(err)
		}
	}
	if _, err := os.Stat("/etc/rocast"); err == nil {
		t.Skip("this machine has rocast")
	}
	work, build := t.TempDir(), t.TempDir()
	if output, err := exec.Command("unshare", "-m", "sh", "-ec", `mount -t tmpfs none "$0"; cd "$0"; mkdir u w r; mount -t overlay overlay -o lowerdir=/,upperdir=u,workdir=w r`, work).CombinedOutput(); err != nil {
		t.Skipf("no layer over this machine's files: %v %s", err, output)
	}
	for _, program := range []string{"rocast", "rocastd", "rocast-edge"} {
		if err := os.WriteFile(filepath.Join(build, program), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("sh", "-ec", `echo "# new" >>packaging/rocastd.yaml; exec packaging/build "$0" v9 0123456789abcdef`, build)
	cmd.Dir, cmd.Env = tree, append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("packaging/build: %v\n%s", err, text)
	}
	newer, err := filepath.Glob(filepath.Join(build, "packages", "rocast-[0-9]*.rpm"))
	if err != nil || len(newer) != 1 {
		t.Fatal(newer, err)
	}
	cmd = exec.Command("unshare", "-m", "sh", "-ec", installsRPM, rpm, newer[0], work)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	text, err := cmd.Output()
	want := `user: rocast:rocast daemon:/var/lib/rocast
differs from the package: 
version: v1.2.3-rc1-4-gabc
daemon: v1.2.3-rc1-4-gabc
upgrade: warning: /etc/rocast/rocastd.yaml created as /etc/rocast/rocastd.yaml.rpmnew
config: ports: [enp1s0]; the new one: # new
installed: 9
removal: warning: /etc/rocast/rocastd.yaml saved as /etc/rocast/rocastd.yaml.rpmsave
config: ports: [enp1s0]
left: root/etc/rocast root/etc/rocast/rocastd.yaml.rpmnew root/etc/rocast/rocastd.yaml.rpmsave root/var/lib/rocast root/var/lib/rocast/groups 
`
	if err != nil || string(text) != want {
		t.Errorf("%v, got\n%s\nwant\n%s\n%s", err, text, want, &errs)
	}
}
