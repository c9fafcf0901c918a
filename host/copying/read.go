package copying

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// changed is why a file is left out.
const changed = "it was changed while it was read"

// sendFiles sends what the plan says of the files of a batch.
func (s *Source) sendFiles(ctx context.Context, entries []Entry, plan map[int]wanted) error {
	next := upcoming{entries: entries, open: (*Entry).open}
	for i := range entries {
		next.announce(i, func(i int) bool { _, planned := plan[i]; return planned })
		e := &entries[i]
		w, planned := plan[i]
		switch {
		case e.Kind == Stream:
			if err := s.sendStream(ctx, i); err != nil {
				return err
			}
		case e.Kind == File && planned:
			if err := s.sendFile(ctx, i, e, w); err != nil {
				return err
			}
		}
	}
	return nil
}

// open opens a file of the source. One that was replaced by a FIFO must not hold up the source.
func (e *Entry) open() (*os.File, error) {
	return os.OpenFile(e.local, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

// filesAhead is how many entries before its turn the kernel hears that a file will be read. In a
// large file the kernel reads ahead by itself. Small ones would come from the disk one by one.
const filesAhead = 16

// upcoming are the files that are read one after the other.
type upcoming struct {
	entries []Entry
	open    func(*Entry) (*os.File, error)
	told    int // the kernel has heard of the files before this one
}

// announce asks the kernel for the beginnings of the files that come soon after i, where they will
// be read. What cannot be opened is said when its turn comes.
func (u *upcoming) announce(i int, read func(i int) bool) {
	for u.told = max(u.told, i+1); u.told < min(i+1+filesAhead, len(u.entries)); u.told++ {
		e := &u.entries[u.told]
		if e.Kind != File || e.Size == 0 || !read(u.told) {
			continue
		}
		if f, err := u.open(e); err == nil {
			_ = unix.Fadvise(int(f.Fd()), 0, BlockBytes, unix.FADV_WILLNEED) // a hint
			_ = f.Close()                                                    // nothing was written
		}
	}
}

// reading is a file that is being sent.
type reading struct {
	*Source
	*os.File
	number []byte
	hash   hash.Hash
	goOn   func(int) error // fails when nobody wants the file any more
	wanted
}

// errChanged says that a file is not what it was when it was listed.
var errChanged = errors.New(changed)

func (s *Source) sendFile(ctx context.Context, i int, e *Entry, w wanted) error {
	why, err := s.tryFile(ctx, i, e, w)
	if err != nil {
		return err
	}
	switch {
	case why == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	s.omit(e.local, plain(why))
	return s.out.add(ctx, kindLeftOut, numbers(uint64(i)), []byte(plain(why)))
}

// tryFile sends a file. why is the reason for which it cannot be sent, err that nothing can.
func (s *Source) tryFile(ctx context.Context, i int, e *Entry, w wanted) (why, err error) {
	f, why := e.open()
	if why != nil {
		return why, nil
	}
	defer f.Close()
	before, why := f.Stat()
	if why != nil {
		return why, nil
	}
	if !before.Mode().IsRegular() || before.Size() != e.Size || before.ModTime().UnixNano() != e.ModTime {
		return errChanged, nil
	}
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_SEQUENTIAL) // a hint
	r := &reading{Source: s, File: f, number: numbers(uint64(i)), hash: sha256.New(), wanted: w, goOn: func(int) error { return context.Cause(ctx) }}
	if w.again {
		if err := s.out.add(ctx, kindAgain, r.number); err != nil {
			return nil, err
		}
	}
	if why, err := r.units(ctx, e.Size); why != nil || err != nil {
		return why, err
	}
	after, why := f.Stat()
	if why != nil {
		return why, nil
	}
	if after.Size() != before.Size() || changeTime(after) != changeTime(before) || after.ModTime() != before.ModTime() {
		return errChanged, nil
	}
	sum := r.hash.Sum(nil)
	if w.givers != nil {
		list := haveThis(w.givers, sealed(s.header.token, sum))
		if list == "" {
			return s.tryFile(ctx, i, e, *w.instead)
		}
		if err := s.out.add(ctx, kindGivers, r.number, []byte(list)); err != nil {
			return nil, err
		}
	}
	return nil, s.out.add(ctx, kindFileEnd, r.number, sum)
}

func changeTime(info os.FileInfo) (t unix.Timespec) {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		t = unix.Timespec{Sec: s.Ctim.Sec, Nsec: s.Ctim.Nsec}
	}
	return t
}

// units sends those units of the file that somebody lacks, and hashes all.
func (r *reading) units(ctx context.Context, size int64) (why, err error) {
	unit := unitBytes(size)
	for n, at := 0, int64(0); at < size; n, at = n+1, at+unit {
		end := min(at+unit, size)
		needed := !r.none
		if r.claims != nil {
			if needed, why = r.differs(n, at, end); why != nil {
				return why, nil
			}
		}
		if needed {
			why, err = r.send(ctx, at, end)
		} else {
			why, err = r.pass(ctx, at, end)
		}
		if why != nil || err != nil {
			return why, err
		}
	}
	return nil, nil
}

// differs reports whether a unit is not what all receivers have.
func (r *reading) differs(n int, at, end int64) (bool, error) {
	h := sha256.New()
	if err := r.read(h, at, end); err != nil {
		return false, err
	}
	own := sealed(r.header.token, h.Sum(nil))
	for _, units := range r.claims {
		if n >= len(units) || !bytes.Equal(units[n], own) {
			return true, nil
		}
	}
	return false, nil
}

// read hashes a part of the file.
func (r *reading) read(h hash.Hash, at, end int64) error {
	if r.buffer == nil {
		r.buffer = make([]byte, BlockBytes)
	}
	err := hashOf(r.File, h, at, end, r.buffer, r.goOn)
	if errors.Is(err, io.EOF) {
		err = errChanged
	}
	return err
}

// send sends a part of the file: its data, and its holes where a receiver may have data.
func (r *reading) send(ctx context.Context, at, end int64) (why, err error) {
	data := dataOf(r.File, at, end)
	if r.holes {
		for _, h := range holesIn(data, at, end) {
			if err := r.out.add(ctx, kindHole, r.number, numbers(uint64(h.from), uint64(h.to-h.from))); err != nil {
				return nil, err
			}
		}
	}
	for _, d := range data {
		if why, err := r.pass(ctx, at, d.from); why != nil || err != nil {
			return why, err
		}
		for at = d.from; at < d.to; {
			n, why, err := r.block(ctx, at, d.to)
			if why != nil || err != nil {
				return why, err
			}
			at += n
		}
	}
	return r.pass(ctx, at, end)
}

// upToBytes bounds what a receiver hashes between two messages, so that a slow disk does not look
// like a receiver that takes none.
const upToBytes = 16 << 20

// pass hashes a part of the file that is not sent: the receivers have it, or it is a hole. They
// hash it at the same time.
func (r *reading) pass(ctx context.Context, at, end int64) (why, err error) {
	for at < end {
		next := min(end, at+upToBytes-r.unsent)
		if why := r.read(r.hash, at, next); why != nil {
			return why, nil
		}
		r.unsent += next - at
		at = next
		if r.unsent < upToBytes {
			continue
		}
		r.unsent = 0
		if r.givers != nil { // who has it hashes nothing, and who lacks it waits for a giver
			continue
		}
		if err := r.out.add(ctx, kindUpTo, r.number, numbers(uint64(at))); err != nil {
			return nil, err
		}
		if err := r.out.send(ctx); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// block reads bytes into the next message, where they stay until they are sent.
func (r *reading) block(ctx context.Context, at, end int64) (n int64, why, err error) {
	n = min(end-at, BlockBytes-at%BlockBytes)
	body := len(r.number) + 8
	if err := r.out.room(ctx, recordHeader+body+int(n)); err != nil {
		return 0, nil, err
	}
	m := r.out.message
	from := len(m) + recordHeader + body
	bytes := m[from : from+int(n)]
	if got, why := r.ReadAt(bytes, at); got < len(bytes) {
		if why == nil || errors.Is(why, io.EOF) {
			why = errChanged
		}
		return 0, why, nil
	}
	r.hash.Write(bytes)
	r.out.message = appendRecord(m, kindData, r.number, numbers(uint64(at)), bytes)
	return n, nil, nil
}

// unlessEnded calls do, which hears no context: a read of a pipe, for example. If ctx ends first,
// do is left alone, and what it uses may not be used again.
func unlessEnded(ctx context.Context, do func() (int, error)) (int, error) {
	type result struct {
		n   int
		err error
	}
	results := make(chan result, 1)
	go func() {
		n, err := do()
		results <- result{n, err}
	}()
	select {
	case r := <-results:
		return r.n, r.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// sendStream sends standard input to its end.
func (s *Source) sendStream(ctx context.Context, i int) error {
	h := sha256.New()
	number := numbers(uint64(i))
	buffer := make([]byte, BlockBytes)
	for at := uint64(0); ; {
		n, err := unlessEnded(ctx, func() (int, error) { return io.ReadFull(s.Input, buffer) })
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if n > 0 {
			h.Write(buffer[:n])
			if err := s.out.add(ctx, kindData, number, numbers(at), buffer[:n]); err != nil {
				return err
			}
			at += uint64(n)
			s.total.Add(int64(n))
		}
		switch {
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			return s.out.add(ctx, kindFileEnd, number, h.Sum(nil))
		case err != nil:
			why := fmt.Sprint("read the standard input: ", plain(err))
			s.omit("-", why)
			return s.out.add(ctx, kindLeftOut, number, []byte(why))
		}
	}
}
