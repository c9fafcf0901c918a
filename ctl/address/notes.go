package address

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const bootIDFile = "/proc/sys/kernel/random/boot_id"

// note records that the package is about to add an address, or has added it. The note names the
// interface, because an ifindex may belong to a different interface when the note is read.
type note struct {
	ip   netip.Addr
	name string
}

func (n note) String() string { return n.ip.String() + "@" + n.name }

// notes is the directory of the notes of this boot. They need no sync: if the box crashes and loses
// them, it loses the addresses too.
//
// A full or read-only disk must not prevent a group from getting its IP. An address without a note
// stays on its interface after a crash, where a later run finds it and uses it again. A note that
// cannot be deleted counts only if the address carries the mark.
type notes string

func unwritable(err error) bool {
	return errors.Is(err, unix.EROFS) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

func openNotes(dir string) (notes, error) {
	boot, err := os.ReadFile(bootIDFile)
	if err != nil {
		return "", fmt.Errorf("keep notes of addresses: %w", err)
	}
	ours := filepath.Join(dir, strings.TrimSpace(string(boot)))
	if err := os.MkdirAll(ours, 0o700); err != nil && !unwritable(err) {
		return "", fmt.Errorf("keep notes of addresses: %w", err)
	}
	boots, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("keep notes of addresses: %w", err)
	}
	for _, entry := range boots {
		if path := filepath.Join(dir, entry.Name()); path != ours {
			if err := os.RemoveAll(path); err != nil && !unwritable(err) {
				return "", fmt.Errorf("drop the notes of an earlier boot: %w", err)
			}
		}
	}
	return notes(ours), nil
}

func (d notes) put(n note) error {
	err := os.WriteFile(d.path(n), nil, 0o600)
	if unwritable(err) || errors.Is(err, os.ErrNotExist) { // the directory could not be created either
		return nil
	}
	return err
}

func (d notes) drop(n note) error {
	err := os.Remove(d.path(n))
	if unwritable(err) || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func (d notes) list() ([]note, error) {
	entries, err := os.ReadDir(string(d))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read the notes of addresses: %w", err)
	}
	var list []note
	for _, entry := range entries {
		ip, name, _ := strings.Cut(entry.Name(), "@")
		addr, err := netip.ParseAddr(ip)
		if err != nil {
			return nil, fmt.Errorf("%s is no note of an address; remove it", filepath.Join(string(d), entry.Name()))
		}
		list = append(list, note{ip: addr, name: name})
	}
	return list, nil
}

func (d notes) path(n note) string { return filepath.Join(string(d), n.String()) }
