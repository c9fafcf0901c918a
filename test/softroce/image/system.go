package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// diskBytes is the size of the disk of a system. The file is sparse.
const diskBytes = 3 << 30

// agentUnit runs the agent when the virtio serial port is there, and again after the lab has
// closed the stream.
const agentUnit = `[Unit]
Description=agent of the lab
Wants=dev-virtio\x2dports-rocast.control.device
After=dev-virtio\x2dports-rocast.control.device

[Service]
ExecStart=/usr/local/sbin/lab-agent
Environment=HOME=/root

[Install]
WantedBy=multi-user.target
`

// BuildSystem makes the image of a whole Debian, such as "bookworm", in the cache directory. Its
// changes of the system as it was installed are the agent, which is a service, a host name, and a
// machine ID, so that systemd does not ask on the console as it does at a first boot.
func BuildSystem(ctx context.Context, release string) (Image, error) {
	image, err := buildSystem(ctx, release)
	if err != nil {
		return Image{}, fmt.Errorf("build the image of Debian %s: %w", release, err)
	}
	return image, nil
}

func buildSystem(ctx context.Context, release string) (Image, error) {
	cache, err := cacheDir()
	if err != nil {
		return Image{}, err
	}
	dir := filepath.Join(cache, "system", release)
	if err := prepared(dir, "Debian "+release); err != nil {
		return Image{}, err
	}
	unlock, err := lock(cache)
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	root := filepath.Join(dir, "root")
	bzImage, err := onlyMatch(filepath.Join(root, "boot/vmlinuz-*"))
	if err != nil {
		return Image{}, err
	}
	initrd, err := onlyMatch(filepath.Join(root, "boot/initrd.img-*"))
	if err != nil {
		return Image{}, err
	}
	vmlinux, err := kernel{dir: dir, bzImage: bzImage}.vmlinux(ctx)
	if err != nil {
		return Image{}, err
	}
	if err := addAgent(ctx, root); err != nil {
		return Image{}, err
	}
	image := Image{Series: release, Vmlinux: vmlinux, Initramfs: initrd, Disk: filepath.Join(dir, "disk")}
	return image, makeDisk(ctx, root, image.Disk)
}

func addAgent(ctx context.Context, root string) error {
	source, err := sourceDir(ctx)
	if err != nil {
		return err
	}
	const unit, units = "lab-agent.service", "etc/systemd/system"
	wanted := filepath.Join(root, units, "multi-user.target.wants", unit)
	if err := os.Remove(wanted); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return errors.Join(
		buildAgent(ctx, source, filepath.Join(root, "usr/local/sbin/lab-agent")),
		os.WriteFile(filepath.Join(root, units, unit), []byte(agentUnit), 0o644),
		os.Symlink("../"+unit, wanted),
		os.WriteFile(filepath.Join(root, "etc/hostname"), []byte("box\n"), 0o644),
		os.WriteFile(filepath.Join(root, "etc/machine-id"), []byte("726f6361737426f6361737400000001b\n"), 0o444),
	)
}

// makeDisk writes the file system of a disk that has no partitions.
func makeDisk(ctx context.Context, root, path string) error {
	part := path + ".part"
	if err := os.WriteFile(part, nil, 0o644); err != nil {
		return err
	}
	if err := os.Truncate(part, diskBytes); err != nil {
		return err
	}
	if err := run(exec.CommandContext(ctx, "mkfs.ext4", "-q", "-F", "-d", root, part)); err != nil {
		return err
	}
	return os.Rename(part, path)
}
