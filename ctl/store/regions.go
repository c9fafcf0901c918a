package store

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"os"
	"path/filepath"
)

// The file of a group's regions has a frame for each change: the number of its bytes and a checksum
// of that number and the bytes, 4 bytes each and little-endian, and then the bytes. An empty frame
// ends the file: all in front of it was stored, so if the last change is wrong, it was damaged
// later, and no crash has left it unfinished.
const (
	frameHeadBytes = 8
	// maxChangeBytes bounds a change. A crash leaves at most one unfinished frame, at the end of
	// the file. So what is wrong further in front was finished, and was damaged later.
	maxChangeBytes = 2 << 20
)

// errDamagedRegions: a part of a file of regions is wrong that a crash cannot have left unfinished.
var errDamagedRegions = errors.New("the file with its regions is damaged")

// errNoRegions: a file of regions is gone. PutRegions makes one when the group is stored.
var errNoRegions = errors.New("the file with its regions is missing")

// AppendRegions stores one more change of a group's regions, which is not empty. The changes take
// at bytes before and end bytes after it. What is behind at is no change: it was left by one that
// was not made, or says that all before it is stored.
func (s *Store) AppendRegions(name string, at int64, change []byte) (end int64, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("keep the regions of group %s: %w", name, err)
		}
	}()
	if len(change) > maxChangeBytes {
		return at, fmt.Errorf("the change has %d bytes, and may have %d; make several", len(change), maxChangeBytes)
	}
	file, err := os.OpenFile(s.beside(name, regionsSuffix), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return at, err
	}
	defer file.Close() // once the change is synced, closing cannot lose it
	info, err := file.Stat()
	if err != nil {
		return at, err
	}
	if info.Size() < at { // a change behind a hole could not be read back
		return at, fmt.Errorf("the file has %d bytes, and had %d; restart rocastd, which reads it again", info.Size(), at)
	}
	if err := file.Truncate(at); err != nil {
		return at, err
	}
	frame := appendFrame(nil, change)
	_, err = file.WriteAt(frame, at)
	if err == nil {
		err = file.Sync()
	}
	if err == nil && at == 0 { // the file may be new
		err = syncDir(filepath.Join(s.dir, groupsDir))
	}
	if err != nil {
		return at, errors.Join(err, endAt(file, at))
	}
	end = at + int64(len(frame))
	// The change is stored. If a crash comes before this frame is on the disk too, the change is
	// there all the same.
	_, _ = file.WriteAt(lastFrame, end)
	return end, nil
}

// lastFrame is the empty frame at the end.
var lastFrame = appendFrame(nil, nil)

// endAt lets the changes of a file end at a place.
func endAt(file *os.File, at int64) error {
	err := file.Truncate(at)
	if err == nil {
		_, err = file.WriteAt(lastFrame, at)
	}
	return errors.Join(err, file.Sync())
}

// CutRegions takes back the changes behind at.
func (s *Store) CutRegions(name string, at int64) error {
	file, err := os.OpenFile(s.beside(name, regionsSuffix), os.O_WRONLY, 0)
	if err == nil {
		defer file.Close()
		err = endAt(file, at)
	}
	if err != nil {
		return fmt.Errorf("take back a change of the regions of group %s: %w", name, err)
	}
	return nil
}

// PutRegions stores changes in place of all that were stored. They take end bytes.
func (s *Store) PutRegions(name string, changes iter.Seq[[]byte]) (end int64, err error) {
	err = replaceFile(s.beside(name, regionsSuffix), func(w io.Writer) error {
		buffered := bufio.NewWriterSize(w, 1<<20)
		var frame []byte
		for change := range changes {
			frame = appendFrame(frame[:0], change)
			end += int64(len(frame))
			_, _ = buffered.Write(frame) // Flush returns the error
		}
		_, _ = buffered.Write(lastFrame)
		return buffered.Flush()
	})
	if err != nil {
		return 0, fmt.Errorf("keep the regions of group %s: %w", name, err)
	}
	return end, nil
}

// DropRegions removes what is stored of a group's regions.
func (s *Store) DropRegions(name string) error {
	return s.putBeside(name, regionsSuffix, "regions", nil)
}

func appendFrame(b, change []byte) []byte {
	var head [frameHeadBytes]byte
	binary.LittleEndian.PutUint32(head[:], uint32(len(change)))
	binary.LittleEndian.PutUint32(head[4:], sum(head[:4], change))
	return append(append(b, head[:]...), change...)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(length, change []byte) uint32 {
	return crc32.Update(crc32.Checksum(length, castagnoli), castagnoli, change)
}

// Regions calls each for every stored change of a group's regions, which is valid until each
// returns. It removes what a crash has left of a change; cut is the number of its bytes. The
// changes take end bytes.
func (s *Store) Regions(name string, each func(change []byte) error) (end, cut int64, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("read the regions of group %s: %w", name, err)
		}
	}()
	file, err := os.OpenFile(s.beside(name, regionsSuffix), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		err = errNoRegions
	}
	if err != nil {
		return 0, 0, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return 0, 0, err
	}
	from := bufio.NewReaderSize(file, 1<<20)
	var change []byte
	for at := int64(0); at < info.Size(); {
		if change, err = readFrame(from, change); err != nil {
			break
		}
		if at += int64(frameHeadBytes + len(change)); len(change) == 0 {
			continue
		}
		end = at
		if err := each(change); err != nil {
			return end, 0, err
		}
	}
	if err == nil {
		return end, 0, nil
	}
	// Behind an unfinished frame there is no other one.
	_, behind := readFrame(from, nil)
	if cut = info.Size() - end; !errors.Is(err, errDamagedRegions) || cut > frameHeadBytes+maxChangeBytes || behind == nil {
		return end, 0, err
	}
	tail := make([]byte, cut)
	if _, readErr := file.ReadAt(tail, end); readErr != nil {
		return end, 0, readErr
	}
	if endsWithFrame(tail) {
		return end, 0, err
	}
	return end, cut, endAt(file, end)
}

// endsWithFrame reports whether a whole frame lies behind the first byte, at the end. If the length
// of a frame is damaged, the next frame is not found where that length says.
func endsWithFrame(b []byte) bool {
	for at := 1; at+frameHeadBytes <= len(b); at++ {
		head, change := b[at:at+frameHeadBytes], b[at+frameHeadBytes:]
		if binary.LittleEndian.Uint32(head) == uint32(len(change)) && binary.LittleEndian.Uint32(head[4:]) == sum(head[:4], change) {
			return true
		}
	}
	return false
}

// readFrame reads the next change, in the memory of the one before if there is room.
func readFrame(from io.Reader, memory []byte) ([]byte, error) {
	var head [frameHeadBytes]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return nil, unfinished(err)
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > maxChangeBytes {
		return nil, errDamagedRegions
	}
	if int(n) > cap(memory) {
		memory = make([]byte, n)
	}
	change := memory[:n]
	if _, err := io.ReadFull(from, change); err != nil {
		return nil, unfinished(err)
	}
	if sum(head[:4], change) != binary.LittleEndian.Uint32(head[4:]) {
		return nil, errDamagedRegions
	}
	return change, nil
}

func unfinished(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errDamagedRegions
	}
	return err
}
