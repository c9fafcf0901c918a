package image

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// kernel is one unpacked Debian kernel package.
type kernel struct {
	dir     string // kernel/6.1 of the cache
	modules string // .../lib/modules/6.1.0-56-amd64
	bzImage string
}

func findKernel(cache, series string) (kernel, error) {
	k := kernel{dir: filepath.Join(cache, "kernel", series)}
	if err := prepared(k.dir, "kernel "+series); err != nil {
		return kernel{}, err
	}
	// Newer packages have lib in usr, and the newest ones the kernel beside its modules.
	builtin, err := onlyMatch(filepath.Join(k.dir, "lib/modules/*/modules.builtin"))
	if err != nil {
		builtin, err = onlyMatch(filepath.Join(k.dir, "usr/lib/modules/*/modules.builtin"))
	}
	if err != nil {
		return kernel{}, err
	}
	k.modules = filepath.Dir(builtin)
	if k.bzImage, err = onlyMatch(filepath.Join(k.dir, "boot/vmlinuz-*")); err != nil {
		k.bzImage, err = onlyMatch(filepath.Join(k.modules, "vmlinuz"))
	}
	return k, err
}

func onlyMatch(pattern string) (string, error) {
	matches, err := filepath.Glob(pattern)
	if err != nil {
		return "", err
	}
	if len(matches) != 1 {
		return "", fmt.Errorf("%d files match %s, want 1", len(matches), pattern)
	}
	return matches[0], nil
}

// vmlinux returns the path of the kernel without its compressed wrapper. The first call unpacks it:
// an emulated guest would need longer for the decompression than for the rest of its boot.
func (k kernel) vmlinux(ctx context.Context) (string, error) {
	path := filepath.Join(k.dir, "vmlinux")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	image, err := os.ReadFile(k.bzImage)
	if err != nil {
		return "", err
	}
	content, err := unwrap(ctx, image)
	if err != nil {
		return "", fmt.Errorf("unpack %s: %w", k.bzImage, err)
	}
	return path, writeFile(path, content)
}

// The x86 boot protocol's setup header (Documentation/arch/x86/boot.rst).
const (
	setupSectsOffset     = 0x1f1
	payloadOffsetOffset  = 0x248
	payloadLengthOffset  = 0x24c
	sectorBytes          = 512
	sizeTrailerBytes     = 4 // the kernel's makefile appends the unpacked size to the payload
	smallestBzImageBytes = 0x250
)

// unwrap returns the ELF file inside a bzImage.
func unwrap(ctx context.Context, image []byte) ([]byte, error) {
	if len(image) < smallestBzImageBytes {
		return nil, errors.New("too short for a bzImage")
	}
	start := (int(image[setupSectsOffset])+1)*sectorBytes + int(binary.LittleEndian.Uint32(image[payloadOffsetOffset:]))
	end := start + int(binary.LittleEndian.Uint32(image[payloadLengthOffset:])) - sizeTrailerBytes
	if start > end || end > len(image) {
		return nil, errors.New("payload lies outside the bzImage")
	}
	return decompress(ctx, image[start:end])
}

// decompress finds the format by the first bytes. It returns content that is not compressed
// unchanged.
func decompress(ctx context.Context, content []byte) ([]byte, error) {
	for magic, tool := range map[string][]string{
		"\xfd7zXZ":         {"xz", "-dc"},
		"\x28\xb5\x2f\xfd": {"zstd", "-dc"},
		"\x1f\x8b":         {"gzip", "-dc"},
	} {
		if !bytes.HasPrefix(content, []byte(magic)) {
			continue
		}
		cmd := exec.CommandContext(ctx, tool[0], tool[1:]...)
		cmd.Stdin = bytes.NewReader(content)
		return cmd.Output()
	}
	return content, nil
}
