package copying

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// BlockBytes is the longest piece of a file in one message. Pieces begin at its multiples.
const BlockBytes = 1 << 20

// MessageBytes is the length of the buffers of a Sender and of a Receiver.
const MessageBytes = BlockBytes + 4096

// Sender sends messages to all receivers, in order.
type Sender interface {
	// Buffer returns a buffer of MessageBytes that no message uses. It waits until there is one.
	Buffer(ctx context.Context) ([]byte, error)
	// Send sends a message, which begins where a buffer of Buffer does. The buffer is the Sender's
	// again. An error means that some receivers may lack this message and ones before.
	Send(ctx context.Context, message []byte) error
	// Flush waits until all receivers have everything.
	Flush(ctx context.Context) error
}

// Inbox receives messages.
type Inbox interface {
	// Next returns the next message, which is valid until Next is called again.
	Next(ctx context.Context) ([]byte, error)
}

// header is at the beginning of each message, so that a receiver that comes late learns from any
// message where to report.
type header struct {
	token   [16]byte // of this copy
	pass    uint32
	address string // where the source hears reports
}

const magic = "RCP1"

func (h *header) append(b []byte) []byte {
	b = append(b, magic...)
	b = append(b, h.token[:]...)
	b = binary.BigEndian.AppendUint32(b, h.pass)
	b = append(b, byte(len(h.address)))
	return append(b, h.address...)
}

var (
	errForeign = errors.New("a message of another program has come: do both sides run the same version of rocast-cp, and is the group its own?")
	errCut     = errors.New("a message is shorter than it says")
)

func (h *header) decode(b []byte) (rest []byte, err error) {
	fixed := len(magic) + len(h.token) + 5
	if len(b) < fixed || string(b[:len(magic)]) != magic {
		return nil, errForeign
	}
	copy(h.token[:], b[len(magic):])
	h.pass = binary.BigEndian.Uint32(b[fixed-5:])
	end := fixed + int(b[fixed-1])
	if len(b) < end {
		return nil, errCut
	}
	h.address = string(b[fixed:end])
	return b[end:], nil
}

// kind is what a record is. A message is a header and any number of records.
type kind byte

const (
	kindPass     kind = 1 + iota // a pass begins
	kindBatch                    // a batch begins: its number
	kindEntry                    // the next entry of the batch
	kindListed                   // the batch has no more entries: SHA-256 of all
	kindData                     // bytes of a file: its number in the batch, offset, bytes
	kindHole                     // zeros of a file: its number, offset, length
	kindUpTo                     // nothing more comes of a file below an offset: its number, offset
	kindGivers                   // a file comes from other receivers: its number, their addresses
	kindFileEnd                  // a file is complete: its number, SHA-256
	kindLeftOut                  // a file is not sent: its number, why
	kindAgain                    // a file comes once more from its beginning: its number
	kindBatchEnd                 // the batch is complete: who lacks a file says so
	kindPassEnd                  // how many batches the pass had
	kindEnd                      // the source has nothing more to send
	kindRefused                  // the source ends this receiver's part: why
)

// recordHeader is the kind and the length of a record.
const recordHeader = 5

func appendRecord(b []byte, k kind, parts ...[]byte) []byte {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	b = binary.BigEndian.AppendUint32(append(b, byte(k)), uint32(n))
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

// records calls do with each record of a message behind its header.
func records(b []byte, do func(kind, []byte) error) error {
	for len(b) > 0 {
		if len(b) < recordHeader {
			return errCut
		}
		n := int(binary.BigEndian.Uint32(b[1:]))
		if n > len(b)-recordHeader {
			return errCut
		}
		if err := do(kind(b[0]), b[recordHeader:recordHeader+n]); err != nil {
			return err
		}
		b = b[recordHeader+n:]
	}
	return nil
}

// numbers appends 64-bit numbers.
func numbers(all ...uint64) (b []byte) {
	for _, n := range all {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return b
}

// takeNumbers reads as many numbers as there are pointers.
func takeNumbers(b []byte, into ...*uint64) (rest []byte, err error) {
	if len(b) < 8*len(into) {
		return nil, errCut
	}
	for i, n := range into {
		*n = binary.BigEndian.Uint64(b[8*i:])
	}
	return b[8*len(into):], nil
}

// EntryKind is what an entry of the list is.
type EntryKind byte

const (
	File EntryKind = 1 + iota
	Directory
	DirectoryEnd // all entries of the directory were listed
	Symlink
	Stream // standard input, of unknown size
)

// Entry is one name that is copied.
type Entry struct {
	Kind    EntryKind
	Mode    os.FileMode // permissions, setuid, setgid, sticky
	ModTime int64       // ns since 1970
	Size    int64
	Path    string // below the target
	Target  string // of a symlink

	local string // where the source has it
}

// maxText bounds the names of an entry: twice what Linux takes.
const maxText = 8192

func (e *Entry) append(b []byte) []byte {
	b = append(b, byte(e.Kind))
	b = append(b, numbers(uint64(e.Mode), uint64(e.ModTime), uint64(e.Size), uint64(len(e.Path)))...)
	b = append(b, e.Path...)
	return append(b, e.Target...)
}

func (e *Entry) decode(b []byte) error {
	if len(b) == 0 {
		return errCut
	}
	var mode, modTime, size, path uint64
	rest, err := takeNumbers(b[1:], &mode, &modTime, &size, &path)
	switch {
	case err != nil:
		return err
	case path > uint64(len(rest)):
		return errCut
	}
	*e = Entry{
		Kind: EntryKind(b[0]), Mode: os.FileMode(mode) & modeBits, ModTime: int64(modTime), Size: int64(size),
		Path: string(rest[:path]), Target: string(rest[path:]),
	}
	return e.check()
}

const modeBits = os.ModePerm | os.ModeSetuid | os.ModeSetgid | os.ModeSticky

// check refuses what no source sends that runs this program. A receiver trusts no name.
func (e *Entry) check() error {
	if e.Kind == Stream {
		return nil
	}
	if e.Kind < File || e.Kind > Stream {
		return fmt.Errorf("%q is of an unknown kind", e.Path)
	}
	if len(e.Path) > maxText || len(e.Target) > maxText {
		return errForeign
	}
	if e.Size < 0 {
		return fmt.Errorf("%q has a size below 0", e.Path)
	}
	if !filepath.IsLocal(e.Path) || e.Path == "." || filepath.Clean(e.Path) != e.Path || strings.ContainsRune(e.Path, 0) {
		return fmt.Errorf("the name %q leads out of the directory, so nothing was written to it", e.Path)
	}
	return nil
}

// unitBytes is the piece of a file of which a receiver says that it has it: a multiple of
// BlockBytes, so that no file has more than maxUnits of them.
func unitBytes(size int64) int64 {
	blocks := (size + BlockBytes - 1) / BlockBytes
	return BlockBytes * max(1, (blocks+maxUnits-1)/maxUnits)
}

const maxUnits = 4096
