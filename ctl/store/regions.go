package store

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"os"
)

// The file of a group's regions begins with a head, which says up to which byte the file was
// synced. Behind it there is a frame for each change: the number of its bytes and a checksum of
// that number and the bytes, 4 bytes each and little-endian, and then the bytes. The head is
// written after the change has been synced, and gets to the disk with the next change at the
// latest: a crash may leave an unfinished change behind the bytes that the head names, and nowhere
// else. So a file that is shorter, or wrong further in front, was damaged later.
//
// A file of an older release has no head, and frames without bytes say there that all in front
// of them was synced.
const (
	frameHeadBytes = 8
	headBytes      = 16
	// maxChangeBytes bounds a change.
	maxChangeBytes = 2 << 20
	// headMagic begins a head: no change has so many bytes.
	headMagic = 0x52434d45
)

// errDamagedRegions: a part of a file of regions is wrong that a crash cannot have left unfinished.
var errDamagedRegions = errors.New("the file with its regions is damaged")

// errNoRegions: a file of regions is gone. PutRegions makes one when the group is stored.
var errNoRegions = errors.New("the file with its regions is missing")

// appendHead appends the head of a file whose first end bytes are synced.
func appendHead(b []byte, end int64) []byte {
	var head [headBytes]byte
	binary.LittleEndian.PutUint32(head[:], headMagic)
	binary.LittleEndian.PutUint64(head[8:], uint64(end))
	binary.LittleEndian.PutUint32(head[4:], sum(head[:4], head[8:]))
	return append(b, head[:]...)
}

// readHead returns how many bytes of a file are synced. A file of an older release has no
// head.
func readHead(file io.ReaderAt) (synced int64, has bool, err error) {
	var head [headBytes]byte
	n, err := file.ReadAt(head[:], 0)
	if err == io.EOF {
		err = nil
	}
	if err != nil || n < 4 || binary.LittleEndian.Uint32(head[:]) != headMagic {
		return 0, false, err
	}
	synced = int64(binary.LittleEndian.Uint64(head[8:]))
	if !bytes.Equal(head[:n], appendHead(nil, synced)) {
		return 0, true, errDamagedRegions
	}
	return synced, true, nil
}

// AppendRegions stores one more change of a group's regions, which is not empty. The changes take
// at bytes before and end bytes after it. What is behind at is no change: it was left by one that
// was not made.
func (s *Store) AppendRegions(name string, at int64, change []byte) (end int64, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("keep the regions of group %s: %w", name, err)
		}
	}()
	if len(change) > maxChangeBytes {
		return at, fmt.Errorf("the change has %d bytes, and may have %d; make several", len(change), maxChangeBytes)
	}
	file, err := os.OpenFile(s.beside(name, regionsSuffix), os.O_RDWR, 0)
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
	if _, has, err := readHead(file); err != nil || !has { // Regions could not write it anew
		return at, errors.Join(err, errors.New("the file could not be written when rocastd started; restart rocastd"))
	}
	if err := file.Truncate(at); err != nil {
		return at, err
	}
	frame := appendFrame(nil, change)
	_, err = file.WriteAt(frame, at)
	if err == nil {
		err = file.Sync()
	}
	if err != nil {
		return at, errors.Join(err, endAt(file, at))
	}
	end = at + int64(len(frame))
	// The change is stored. If a crash comes before this head is on the disk, the change is there
	// all the same.
	_, _ = file.WriteAt(appendHead(nil, end), 0)
	return end, nil
}

// endAt lets the changes of a file end at a place. The head is on the disk before the file is cut,
// so that a crash leaves no file that is shorter than its head says.
func endAt(file *os.File, at int64) error {
	_, err := file.WriteAt(appendHead(nil, at), 0)
	if err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = file.Truncate(at)
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
	err = s.replaceFile(s.beside(name, regionsSuffix), func(file *os.File) error {
		buffered := bufio.NewWriterSize(file, 1<<20)
		end = headBytes
		frame := make([]byte, headBytes)
		_, _ = buffered.Write(frame) // Flush returns the error
		for change := range changes {
			frame = appendFrame(frame[:0], change)
			end += int64(len(frame))
			_, _ = buffered.Write(frame)
		}
		err := buffered.Flush()
		if err == nil {
			_, err = file.WriteAt(appendHead(nil, end), 0)
		}
		return err
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
// returns. The changes take end bytes, and cut bytes behind them are what a crash has left of a
// change. Regions reads on a disk that cannot be written, too.
func (s *Store) Regions(name string, each func(change []byte) error) (end, cut int64, err error) {
	end, cut, old, err := s.readRegions(name, each)
	if err == nil && old {
		if now, err := s.putHead(name, end); err == nil { // otherwise, AppendRegions refuses
			end = now
		}
	}
	if err != nil {
		err = fmt.Errorf("read the regions of group %s: %w", name, err)
	}
	return end, cut, err
}

func (s *Store) readRegions(name string, each func(change []byte) error) (end, cut int64, old bool, err error) {
	file, err := os.Open(s.beside(name, regionsSuffix))
	if errors.Is(err, os.ErrNotExist) {
		err = errNoRegions
	}
	if err != nil {
		return 0, 0, false, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return 0, 0, false, err
	}
	synced, has, err := readHead(file)
	end = headBytes
	if !has {
		synced, end = max(info.Size(), 1), 0
	}
	if err == nil && info.Size() < synced {
		err = errDamagedRegions
	}
	if err != nil {
		return 0, 0, false, err
	}
	from := bufio.NewReaderSize(io.NewSectionReader(file, end, info.Size()), 1<<20)
	for change := []byte(nil); err == nil && end < info.Size(); {
		if change, err = readFrame(from, change); err != nil {
			break
		}
		if end += int64(frameHeadBytes + len(change)); len(change) > 0 {
			err = each(change)
		}
	}
	if end >= synced && err == errDamagedRegions { // the change that a crash has left
		cut, err = info.Size()-end, nil
	}
	return end, cut, !has, err
}

// putHead writes a head in front of the first end bytes of a file of regions.
func (s *Store) putHead(name string, end int64) (now int64, err error) {
	path := s.beside(name, regionsSuffix)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	now = headBytes + end
	return now, s.replaceFile(path, func(file *os.File) error {
		_, err := file.Write(append(appendHead(nil, now), text[:end]...))
		return err
	})
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
