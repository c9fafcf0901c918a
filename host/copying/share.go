package copying

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"
)

// A receiver that lacks a file may get it from one that has it: the source names some of these
// instead of sending the file, and then the SHA-256. At the end of the batch the receiver asks
// them. What does not come so in time, or has another SHA-256, the source sends itself.

// relay lets other receivers give what is to be sent, where at least as many have a file as lack it
// or a part of it. Nobody has a file that was left out before, also if it says that it has verified
// the batch.
func (s *peers) relay(asked []*peer, entries []Entry, plan map[int]wanted, leftOut map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range entries {
		w, planned := plan[i]
		if _, missing := leftOut[entries[i].local]; missing || !planned || w.none || entries[i].Size == 0 {
			continue
		}
		lack, alone := 0, false
		var givers []giver
		var refused []string
		for _, p := range asked {
			if p.gone || p.have == nil {
				continue
			}
			c := p.have.Files[i]
			switch {
			case !p.have.All && c.Whole == nil:
				lack++
				alone = alone || p.shares == ""
				refused = append(refused, p.refuses...)
			case p.shares != "":
				givers = append(givers, giver{p.shares, c.Whole})
			}
		}
		givers = slices.DeleteFunc(givers, func(g giver) bool { return slices.Contains(refused, g.address) })
		if alone || lack > len(givers) || len(givers) == 0 { // who lacks it may have gone meanwhile
			continue
		}
		first := i % len(givers) // each one gives some of the files
		plan[i] = wanted{none: true, givers: slices.Concat(givers[first:], givers[:first]), instead: &w}
	}
}

// giver is a receiver that has a file, or has something that it takes for the file.
type giver struct {
	address string
	whole   sum // what it has, sealed; nil: this process has verified it
}

// givesAt is where a receiver says that it gives files, or nothing if that is no address of its
// host: others connect to it, and no receiver names them another host. Others get it as a word of a
// list, and one that cannot read the list ends.
func givesAt(said string, own net.Addr) string {
	at, err := netip.ParseAddrPort(said)
	from, known := own.(*net.TCPAddr)
	if err != nil || !known || plainIP(at) != plainIP(from.AddrPort()) || strings.Contains(said, " ") || len(said) > maxAddress {
		return ""
	}
	return said
}

// plainIP is an IP in one of the ways in which it can be written. The name of an interface belongs
// to one host.
func plainIP(at netip.AddrPort) netip.Addr { return at.Addr().Unmap().WithZone("") }

// haveThis lists the addresses of receivers that have what the source has.
func haveThis(givers []giver, own sum) string {
	var list []string
	for _, g := range givers {
		if len(list) < maxGivers && (g.whole == nil || bytes.Equal(g.whole, own)) {
			list = append(list, g.address)
		}
	}
	return strings.Join(list, " ")
}

// serve answers other receivers until the listener is closed. Who is not served hears that nothing
// is given, and asks somebody else.
func (r *Receiver) serve(ctx context.Context) {
	var open seating
	refuse := func(conn net.Conn) {
		r.tasks.Go(func() { // nothing was written, so the kernel takes it at once
			err := conn.SetWriteDeadline(time.Now().Add(peerPatience))
			if err == nil {
				_, err = conn.Write(binary.BigEndian.AppendUint32(numbers(0), ungiven))
			}
			_ = errors.Join(err, conn.Close()) // the other one notices
		})
	}
	for {
		conn, err := accept(ctx, r.Peers)
		if err != nil {
			return
		}
		g := &giving{Conn: conn, from: hostOf(conn), out: make([]byte, blockHeader)}
		if r.Member != nil && !r.Member(g.from) { // a network has any number of addresses
			refuse(conn)
			continue
		}
		ok, out := open.take(g)
		if out != nil {
			refuse(out.Conn)
		}
		if !ok {
			refuse(conn)
			continue
		}
		r.tasks.Go(func() {
			defer context.AfterFunc(ctx, func() { _ = g.Close() })()
			_ = r.give(ctx, g, &open) // the other one notices
			if open.free(g) {         // otherwise refuse closes it
				_ = g.Close()
			}
		})
	}
}

// What the length of a block says beside its bytes.
const (
	blockHeader = 12 // the offset and the length of a block
	// nothing: the file ends, at its end. Elsewhere a unit comes anew, and what was there of it is
	// forgotten, so that its holes are holes.
	nothing = 0
	// unneeded: what is below the offset and was not sent is what the other one has.
	unneeded = 1 << 31
	// ungiven: nothing more comes, because the file is not here as it was verified.
	ungiven = unneeded + 1
)

// errUngiven says that a receiver does not give a file, and may give others.
var errUngiven = errors.New("it has the file no more")

// giving is a connection of another receiver that asks for files.
type giving struct {
	net.Conn
	from  netip.Addr
	known bool // it has shown the token; seating guards it
	file  *os.File
	out   []byte // a block behind its header
	at    int64  // how far the other one knows the file
	// own is how many bytes the other one has to hash that do not come, and so are on its disk: it
	// reads nothing meanwhile.
	own  int64
	late <-chan struct{} // closed when the other one is not left without an answer any longer
}

// patience is how long the other one may take nothing, and ask nothing.
func (g *giving) patience() time.Duration { return peerPatience + takes(g.own, slowestDisk) }

// block sends a block whose bytes are in place.
func (g *giving) block(at int64, n uint32) error {
	binary.BigEndian.PutUint64(g.out, uint64(at))
	binary.BigEndian.PutUint32(g.out[8:], n)
	if n >= unneeded { // no bytes follow
		n = 0
	}
	g.own += max(0, at-g.at)
	g.at = at + int64(n)
	if err := g.SetWriteDeadline(time.Now().Add(g.patience())); err != nil {
		return err
	}
	_, err := g.Write(g.out[:blockHeader+n])
	return err
}

// data sends a part of the file, without its holes.
func (g *giving) data(at, end int64) error {
	for at < end {
		data := nextData(g.file, at, end)
		for at = data.from; at < data.to; {
			n := int(min(data.to-at, BlockBytes))
			if _, err := io.ReadFull(io.NewSectionReader(g.file, at, int64(n)), g.out[blockHeader:blockHeader+n]); err != nil {
				return errors.Join(errUngiven, err)
			}
			if err := g.block(at, uint32(n)); err != nil {
				return err
			}
			at += int64(n)
		}
	}
	return nil
}

// units sends those units of the file that differ from what the other one has.
func (g *giving) units(ctx context.Context, size int64, token [16]byte, has []sum) error {
	unit := unitBytes(size)
	for i, at := 0, int64(0); at < size; i, at = i+1, at+unit {
		end := min(at+unit, size)
		h := sha256.New()
		if err := hashOf(g.file, h, at, end, g.out[blockHeader:], func(int) error { return ctx.Err() }); err != nil {
			return errors.Join(errUngiven, err)
		}
		if i < len(has) && bytes.Equal(has[i], sealed(token, h.Sum(nil))) {
			if err := g.block(end, unneeded); err != nil {
				return err
			}
			continue
		}
		if err := g.block(at, nothing); err != nil {
			return err
		}
		if err := g.data(at, end); err != nil {
			return err
		}
	}
	return nil
}

// takeUnits reads what the other receiver has.
func takeUnits(in io.Reader, count int) ([]sum, error) {
	if count < 0 || count > maxUnits {
		return nil, errForeign
	}
	all := make([]byte, count*sha256.Size)
	if _, err := io.ReadFull(in, all); err != nil {
		return nil, err
	}
	var list []sum
	for s := range slices.Chunk(all, sha256.Size) {
		list = append(list, s)
	}
	return list, nil
}

// soon is how long a giver waits at most on a connection until it knows that a file is the
// source's. Who asks waits for peerPatience, and does not count this wait (fetching.from), so it
// hears in time, also over a slow link, that it gets nothing.
const soon = 3 * time.Second

// give answers another receiver that asks for files. Who does not know the copy has no answer.
func (r *Receiver) give(ctx context.Context, g *giving, open *seating) error {
	in := bufio.NewReaderSize(g, maxHello)
	wait, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	g.late = wait.Done()
	for {
		if err := g.SetReadDeadline(time.Now().Add(g.patience())); err != nil {
			return err
		}
		text, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		var asked request
		if err := json.Unmarshal(text, &asked); err != nil {
			return err
		}
		if !r.isOfTheCopy(&asked) || !open.knows(g) {
			return errForeign
		}
		has, err := takeUnits(in, asked.Units)
		if err != nil {
			return err
		}
		if len(g.out) == blockHeader {
			g.out = make([]byte, blockHeader+BlockBytes)
		}
		g.at = 0
		err = r.giveFile(ctx, g, &asked, has)
		if errors.Is(err, errUngiven) {
			err = g.block(g.at, ungiven)
		}
		if err != nil {
			return err
		}
	}
}

// giveFile sends a file, or the units of which the other one has something else: blocks, each
// behind its offset and length.
func (r *Receiver) giveFile(ctx context.Context, g *giving, asked *request, has []sum) error {
	e, err := r.verifiedEntry(ctx, asked, g.late)
	if err != nil {
		return err
	}
	if g.file, err = r.Target.openSame(e.Path); err != nil {
		return errors.Join(errUngiven, err)
	}
	defer g.file.Close()
	before, err := g.file.Stat()
	if err != nil || !before.Mode().IsRegular() || before.Size() != e.Size || before.ModTime().Sub(time.Unix(0, e.ModTime)).Abs() > coarsestTime {
		return errors.Join(errUngiven, err)
	}
	if asked.Units > 0 {
		err = g.units(ctx, e.Size, r.token, has)
	} else {
		err = g.data(0, e.Size)
	}
	if err != nil {
		return err
	}
	if after, err := g.file.Stat(); err != nil || changeTime(after) != changeTime(before) {
		return errors.Join(errUngiven, err)
	}
	return g.block(e.Size, nothing)
}

// isOfTheCopy reports whether who asks knows the copy that this receiver receives.
func (r *Receiver) isOfTheCopy(asked *request) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.line != nil && asked.Token == hex.EncodeToString(r.token[:])
}

// coarsestTime is the least difference of two times on a file system that keeps only coarse ones. A
// file whose time differs more from that of the source was changed since this receiver has verified
// it.
const coarsestTime = 2 * time.Second

// verifiedEntry finds the entry that a request means. Only a file is given of which this receiver
// has verified that it is the source's, and no name comes from another receiver. Who asks may have
// heard the end of the batch, and with it all SHA-256, earlier than this receiver.
func (r *Receiver) verifiedEntry(ctx context.Context, asked *request, late <-chan struct{}) (*Entry, error) {
	for {
		e, ended, err := r.entryOf(asked)
		if err != nil || e != nil {
			return e, err
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-late:
			return nil, errUngiven
		}
	}
}

// entryOf finds the entry that a request means. Without an entry and an error the file is not
// verified yet, and may be when the batch has ended.
func (r *Receiver) entryOf(asked *request) (e *Entry, ended <-chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := &r.batch
	known := asked.Pass == r.pass && x.listed && asked.Batch == x.number && asked.File >= 0 &&
		asked.File < len(x.entries) && x.entries[asked.File].Kind == File
	switch {
	case known && x.states[asked.File] == verified:
		own := x.entries[asked.File]
		return &own, nil, nil
	case known && !x.over:
		return nil, x.ended, nil
	}
	return nil, nil, errUngiven
}

// takeGivers takes the addresses of a record.
func takeGivers(b []byte) ([]string, error) {
	list := strings.Split(string(b), " ")
	if len(list) > maxGivers {
		return nil, fmt.Errorf("%w: %d receivers are to give one file", errForeign, len(list))
	}
	if slices.ContainsFunc(list, func(address string) bool { return len(address) > maxAddress }) {
		return nil, errForeign
	}
	return list, nil
}
