package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// moduleLists are the files that name modules. A module stands behind the modules that it depends
// on, and is in one file only. A name with a question mark is omitted if the kernel has no such
// module: what older kernels have as a module is a part of others in newer ones.
var moduleLists = []struct {
	file    string
	modules []string
}{
	{"modules", []string{ // the agent loads them
		"virtio_pci", "virtio_console", "virtio_net",
		"crc32_generic?", // rxe asks the crypto API for it, so no depends= names it
		"rdma_rxe", "rdma_ucm", "8021q",
	}},
	{BoxModules[1:], []string{
		"vmxnet3", "e1000e", "bridge", "bonding?", "team?",
		"veth", "tun", "ifb", "sch_ingress", "sch_netem", "sch_tbf", "cls_u32", "act_mirred", // for tests
	}},
}

// BoxModules is the file in a guest that names the further modules that a guest needs if it is the
// box.
const BoxModules = "/modules-box"

// guestPrograms are the programs in a guest, in addition to the verbs program.
var guestPrograms = []string{
	"dash", "busybox", "ip", "tc", "rdma", "ethtool",
	"ib_write_bw", "ib_write_lat", "ib_send_bw", "ib_send_lat", "ib_read_bw", "ib_read_lat", "ib_atomic_bw",
	"ibv_devinfo", "ibv_rc_pingpong", "rping",
}

// guestApplets are the busybox programs that have names of their own in the guest. ip is not one of
// them, because it would hide the real ip.
var guestApplets = []string{
	"cat", "chmod", "cp", "dmesg", "echo", "free", "grep", "head", "hexdump", "insmod", "kill", "ls", "mkdir", "mknod", "mount", "ping", "ping6", "ps", "rm",
	"sleep", "sort", "tail", "top", "true", "wc",
}

// pack makes the initramfs.
func pack(ctx context.Context, k kernel, u userSpace, built programs) (*archive, error) {
	a := newArchive()
	a.charDevice("dev/console", 5, 1)
	a.file("etc/group", []byte("root:x:0:\n"), 0o644)
	agent, err := os.ReadFile(built.agent)
	if err != nil {
		return nil, err
	}
	a.file("init", agent, 0o755)
	if err := packModules(ctx, a, k); err != nil {
		return nil, err
	}
	if err := packPrograms(a, u, built); err != nil {
		return nil, err
	}
	if err := packProvider(a, u); err != nil {
		return nil, err
	}
	return a, nil
}

func packModules(ctx context.Context, a *archive, k kernel) error {
	set, err := k.moduleSet()
	if err != nil {
		return err
	}
	for _, l := range moduleLists {
		modules, err := set.load(ctx, l.modules...)
		if err != nil {
			return err
		}
		var list strings.Builder
		for _, m := range modules {
			path := "lib/modules/" + m.name + ".ko"
			a.file(path, m.content, 0o644)
			fmt.Fprintf(&list, "/%s\n", path)
		}
		a.file(l.file, []byte(list.String()), 0o644)
	}
	return nil
}

func packPrograms(a *archive, u userSpace, built programs) error {
	for _, name := range guestPrograms {
		if err := u.program(a, name); err != nil {
			return err
		}
	}
	a.symlink("bin/sh", "/usr/bin/dash")
	for _, name := range guestApplets {
		a.symlink("usr/bin/"+name, "busybox")
	}
	return errors.Join(u.executable(a, "usr/bin/"+VerbsProgram, built.verbs), u.executable(a, "usr/bin/"+RDMACMProgram, built.rdmacm),
		u.executable(a, "usr/bin/"+HostProgram, built.host))
}

// packProvider adds libibverbs' driver for rxe. libibverbs opens it by its path, so no program
// lists it as a library.
func packProvider(a *archive, u userSpace) error {
	const config = "etc/libibverbs.d/rxe.driver"
	content, err := os.ReadFile(filepath.Join(u.root, config))
	if err != nil {
		return err
	}
	a.file(config, content, 0o644)
	for name, path := range u.byLib {
		if strings.HasPrefix(name, "librxe-") {
			return u.executable(a, "usr/"+libraryDir+"/libibverbs/"+name, path)
		}
	}
	return fmt.Errorf("none of the guests' packages has the rxe provider")
}
