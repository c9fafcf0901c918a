package image

import (
	"bytes"
	"fmt"
	"path"
)

// archive is an initramfs that is being built: cpio in the "newc" format
// (Documentation/driver-api/early-userspace/buffer-format.rst). Adding an entry adds the
// directories above it.
type archive struct {
	buffer bytes.Buffer
	inode  int
	have   map[string]bool
}

// File types, as in inode(7).
const (
	typeDir     = 0o040000
	typeFile    = 0o100000
	typeSymlink = 0o120000
	typeChar    = 0o020000
)

func newArchive() *archive { return &archive{have: map[string]bool{".": true, "/": true}} }

func (a *archive) file(name string, content []byte, permissions int) {
	a.entry(name, typeFile|permissions, content, 0, 0)
}

func (a *archive) symlink(name, target string) {
	a.entry(name, typeSymlink|0o777, []byte(target), 0, 0)
}

func (a *archive) charDevice(name string, major, minor int) {
	a.entry(name, typeChar|0o600, nil, major, minor)
}

func (a *archive) directory(name string) { a.entry(name, typeDir|0o755, nil, 0, 0) }

// entry adds an entry, unless there is one with this name already.
func (a *archive) entry(name string, mode int, content []byte, major, minor int) {
	name = path.Clean("/" + name)[1:]
	if name == "" || a.have[name] {
		return
	}
	a.have[name] = true
	if parent := path.Dir(name); !a.have[parent] {
		a.directory(parent)
	}
	a.inode++
	a.record(name, a.inode, mode, content, major, minor)
}

const alignment = 4

func (a *archive) record(name string, inode, mode int, content []byte, major, minor int) {
	const uid, gid, links, mtime, devMajor, devMinor, check = 0, 0, 1, 0, 0, 0, 0
	fmt.Fprintf(&a.buffer, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
		inode, mode, uid, gid, links, mtime, len(content), devMajor, devMinor, major, minor, len(name)+1, check, name)
	a.pad()
	a.buffer.Write(content)
	a.pad()
}

func (a *archive) pad() {
	for a.buffer.Len()%alignment != 0 {
		a.buffer.WriteByte(0)
	}
}

// bytes ends the archive and returns it.
func (a *archive) bytes() []byte {
	a.record("TRAILER!!!", 0, 0, nil, 0, 0)
	return a.buffer.Bytes()
}
