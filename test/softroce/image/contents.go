package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// guestModules are loaded in this order. The agent loads every module behind the modules that it
// depends on.
var guestModules = []string{
	"virtio_pci", "virtio_console", "virtio_net",
	"crc32_generic", // rxe asks the crypto API for it, so no depends= names it
	"rdma_rxe", "rdma_ucm", "8021q",
}

// guestPrograms are the programs in a guest, in addition to the verbs program.
var guestPrograms = []string{
	"dash", "busybox", "ip", "rdma", "ethtool",
	"ib_write_bw", "ib_write_lat", "ib_send_bw", "ib_send_lat", "ib_read_bw", "ib_read_lat", "ib_atomic_bw",
	"ibv_devinfo", "ibv_rc_pingpong", "rping",
}

// guestApplets are the busybox programs that have names of their own in the guest. ip is not one of
// them, because it would hide the real ip.
var guestApplets = []string{
	"cat", "cp", "dmesg", "echo", "free", "grep", "head", "hexdump", "kill", "ls", "mkdir", "ping", "ping6", "ps", "rm",
	"sleep", "sort", "tail", "top", "true", "wc",
}

// pack makes the initramfs.
func pack(ctx context.Context, k kernel, u userSpace, built programs) ([]byte, error) {
	a := newArchive()
	a.charDevice("dev/console", 5, 1)
	a.directory("etc")
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
	return a.bytes(), nil
}

func packModules(ctx context.Context, a *archive, k kernel) error {
	modules, err := k.loadOrder(ctx, guestModules...)
	if err != nil {
		return err
	}
	var list strings.Builder
	for _, m := range modules {
		path := "lib/modules/" + m.name + ".ko"
		a.file(path, m.content, 0o644)
		fmt.Fprintf(&list, "/%s\n", path)
	}
	a.file("modules", []byte(list.String()), 0o644)
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
	return u.executable(a, "usr/bin/"+VerbsProgram, built.verbs)
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
