package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// A record is a block with what the log says of it, in memory and on disk:
//
//	0   number of the block, from 0
//	8   bytes of the block
//	16  SHA-256 over the sum of the record before and the block
//	48  unused
//	64  the block
const headerBytes = 64

// sum is the hash of a record. Two logs whose last records have it in common are the same.
type sum [sha256.Size]byte

// seal writes the record of a block into room, and returns it with its sum.
func seal(room []byte, before sum, number uint64, block []byte) (record []byte, s sum) {
	record = room[:headerBytes+len(block)]
	clear(record[:headerBytes])
	binary.BigEndian.PutUint64(record, number)
	binary.BigEndian.PutUint64(record[8:], uint64(len(block)))
	copy(record[headerBytes:], block)
	s = hash(before, record)
	copy(record[16:], s[:])
	return record, s
}

func hash(before sum, record []byte) (s sum) {
	h := sha256.New()
	h.Write(before[:])
	h.Write(record[headerBytes:])
	h.Sum(s[:0])
	return s
}

var errNoRecord = errors.New("no whole record that follows")

// unseal returns the record with which memory begins, if it is record number of a log in which
// before is the sum of the record before.
func unseal(memory []byte, before sum, number uint64) (record []byte, s sum, err error) {
	if len(memory) < headerBytes {
		return nil, s, errNoRecord
	}
	size := binary.BigEndian.Uint64(memory[8:])
	if binary.BigEndian.Uint64(memory) != number || size > uint64(len(memory)-headerBytes) {
		return nil, s, errNoRecord
	}
	record = memory[:headerBytes+size]
	if s = hash(before, record); !bytes.Equal(s[:], record[16:][:len(s)]) {
		return nil, s, errNoRecord
	}
	return record, s, nil
}

// file is a log on disk. One goroutine appends; others may read meanwhile.
type file struct {
	disk  *os.File
	spare []byte // room for the record that is appended

	mu      sync.Mutex
	ends    []int64 // the place behind each record
	last    sum     // of the newest record
	durable uint64  // records that survive a loss of power
}

// openFile opens a log, or creates it. What lies behind the last whole record is cut off: the
// program or the machine ended in the middle of a write.
func openFile(path string, most int) (*file, error) {
	disk, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	f := &file{disk: disk, spare: make([]byte, headerBytes+most)}
	for err == nil {
		err = f.scan()
	}
	if errors.Is(err, errNoRecord) {
		err = disk.Truncate(f.end())
	}
	if err == nil {
		_, err = f.sync()
	}
	if err != nil {
		return nil, errors.Join(err, disk.Close())
	}
	return f, nil
}

// scan takes the next record that is on the disk.
func (f *file) scan() error {
	n, err := f.disk.ReadAt(f.spare[:headerBytes], f.end())
	if err == nil {
		size := min(binary.BigEndian.Uint64(f.spare[8:]), uint64(len(f.spare)-headerBytes))
		n, err = f.disk.ReadAt(f.spare[:headerBytes+size], f.end())
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	record, s, err := unseal(f.spare[:n], f.last, f.records())
	if err == nil {
		f.ends, f.last = append(f.ends, f.end()+int64(len(record))), s
	}
	return err
}

// records is how many records the log has.
func (f *file) records() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return uint64(len(f.ends))
}

// newest is the sum of the newest record, and so of the whole log.
func (f *file) newest() sum {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

func (f *file) end() int64 {
	if len(f.ends) == 0 {
		return 0
	}
	return f.ends[len(f.ends)-1]
}

// append writes the record with which memory begins behind the log. It is durable after sync. A
// sender that does not wait for this replica any more may write to memory meanwhile: what is
// checked is a copy.
func (f *file) append(memory []byte) error {
	number := f.records()
	record, s, err := unseal(f.spare[:copy(f.spare, memory)], f.last, number)
	if err != nil {
		return fmt.Errorf("block %d: %w", number, err)
	}
	if _, err := f.disk.WriteAt(record, f.end()); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ends, f.last = append(f.ends, f.end()+int64(len(record))), s
	return nil
}

// sync makes the log durable, and returns how many records are.
func (f *file) sync() (durable uint64, err error) {
	records := f.records()
	if err := f.disk.Sync(); err != nil {
		return f.durable, err
	}
	f.durable = records
	return records, nil
}

// read returns the record of a block.
func (f *file) read(number uint64) ([]byte, error) {
	f.mu.Lock()
	from, to := int64(0), f.ends[number]
	if number > 0 {
		from = f.ends[number-1]
	}
	f.mu.Unlock()
	record := make([]byte, to-from)
	_, err := f.disk.ReadAt(record, from)
	return record, err
}

// tear leaves behind the log what a loss of power leaves there in the middle of a write: half of a
// record, for which the newest one stands. An empty log stays empty.
func (f *file) tear() error {
	records := f.records()
	if records == 0 {
		return nil
	}
	record, err := f.read(records - 1)
	if err != nil {
		return err
	}
	_, err = f.disk.WriteAt(record[:len(record)/2], f.end())
	return err
}

func (f *file) close() error { return f.disk.Close() }
