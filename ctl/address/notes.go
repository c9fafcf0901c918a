package address

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

const bootIDFile = "/proc/sys/kernel/random/boot_id"

var bootID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

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

// Check returns an error if a directory cannot be one for Open. It makes nothing.
func Check(dir string) error {
	boot, err := thisBoot(dir)
	if err != nil {
		return err
	}
	for _, path := range []string{dir, boot} {
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return notADirectory(&os.PathError{Op: "mkdir", Path: path, Err: unix.ENOTDIR})
		}
	}
	return nil
}

// thisBoot is the directory of the notes of this boot.
func thisBoot(dir string) (string, error) {
	boot, err := os.ReadFile(bootIDFile)
	if err != nil {
		return "", fmt.Errorf("keep notes of addresses: %w", err)
	}
	return filepath.Join(dir, strings.TrimSpace(string(boot))), nil
}

// notADirectory is the error for a file in the place of a directory.
func notADirectory(err error) error {
	return fmt.Errorf("keep notes of addresses: %w; remove the file, and rocastd makes the directory", err)
}

// openNotes deletes the notes of earlier boots. It returns the paths of strays: files that other
// programs put into dir, which it leaves alone.
func openNotes(dir string) (ours notes, strays []string, err error) {
	boot, err := thisBoot(dir)
	if err != nil {
		return "", nil, err
	}
	ours = notes(boot)
	if err := os.MkdirAll(boot, 0o700); errors.Is(err, unix.ENOTDIR) {
		return "", nil, notADirectory(err)
	} else if err != nil && !unwritable(err) {
		return "", nil, fmt.Errorf("keep notes of addresses: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", nil, fmt.Errorf("keep notes of addresses: %w", err)
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if path == string(ours) {
			continue
		}
		if !entry.IsDir() || !bootID.MatchString(entry.Name()) {
			strays = append(strays, path)
		} else if err := os.RemoveAll(path); err != nil && !unwritable(err) {
			return "", nil, fmt.Errorf("drop the notes of an earlier boot: %w", err)
		}
	}
	return ours, strays, nil
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

// list returns the notes, and the paths of files that are no notes.
func (d notes) list() (list []note, strays []string, err error) {
	entries, err := os.ReadDir(string(d))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("read the notes of addresses: %w", err)
	}
	for _, entry := range entries {
		ip, name, _ := strings.Cut(entry.Name(), "@")
		addr, err := netip.ParseAddr(ip)
		n := note{ip: addr, name: name}
		if err != nil || n.String() != entry.Name() || !entry.Type().IsRegular() {
			strays = append(strays, filepath.Join(string(d), entry.Name()))
			continue
		}
		list = append(list, n)
	}
	return list, strays, nil
}

func (d notes) path(n note) string { return filepath.Join(string(d), n.String()) }
