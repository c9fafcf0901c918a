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
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rocast/rocast/ctl/seats"
)

// A receiver that lacks a file may get it from one that has it: the source names some of these
// instead of sending the file, and then the SHA-256. At the end of the batch the receiver asks
// them. What does not come so in time, or has another SHA-256, the source sends itself.

const (
	// peerPatience is how long a connection of another receiver may stand still, and what that
	// receiver may take longer in the whole copy than at slowestPeer bytes a second. With maxGivers
	// that are as slow, a receiver answers the source in time.
	peerPatience = 5 * time.Second
	slowestPeer  = 2 << 20
	maxGivers    = 2
	// maxRefused is how many of the others may give nothing good until a receiver asks none any
	// more. All of them together take less time than a source waits for an answer.
	maxRefused = 4
	// maxVain is how long a receiver asks for files of a batch of which nothing comes, whoever has
	// them: those that say that they do not give a file are not refused.
	maxVain = (maxRefused - 1) * peerPatience
	// maxGiven is how many others are given something at a time. Each takes memory for a block and
	// two descriptors, and anybody may connect. A receiver asks for one file at a time, so
	// maxOfAnAddress bounds none that has an address of its own, and one host cannot keep all
	// others out.
	maxGiven       = 64
	maxOfAnAddress = 4
	// maxAddress bounds what is kept of an address: an IP, an interface and a port in brackets.
	maxAddress = 64
)

// given is what has come from another receiver.
type given struct {
	left time.Duration // how long it may take beyond what its bytes need; peerPatience at most
	why  string        // it is not asked any more
	news Event         // what has come since the last event
}

// request is what a receiver asks of another one: a file of the batch that both have listed.
type request struct {
	Token string `json:"token"`
	Pass  uint32 `json:"pass"`
	Batch uint64 `json:"batch"`
	File  int    `json:"file"`
	// Units is how many SHA-256 follow: those of the units that are there already, sealed. One that
	// is lacking is zeros.
	Units int `json:"units,omitempty"`
}

// promise is a file that other receivers have.
type promise struct {
	givers []string // addresses
	sum    []byte   // of the source; nil: it has not come
}

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

// serve answers other receivers until the listener is closed.
func (r *Receiver) serve(ctx context.Context) {
	free := make(chan struct{}, maxGiven)
	open := seats.Book{Most: maxOfAnAddress}
	for {
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
			return
		}
		conn, err := accept(ctx, r.Peers)
		if err != nil {
			return
		}
		from, _, _ := net.SplitHostPort(conn.RemoteAddr().String()) // never fails with TCP
		if !open.Take(from) {
			// It may be an honest one, of many behind one address.
			<-free
			r.tasks.Go(func() {
				g := &giving{Conn: conn, out: make([]byte, blockHeader)}
				_ = errors.Join(g.block(0, ungiven), conn.Close())
			})
			continue
		}
		r.tasks.Go(func() {
			defer func() { open.Free(from); <-free }()
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			_ = r.give(ctx, conn) // the other one notices
			_ = conn.Close()
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

// giving is a file that another receiver asks for.
type giving struct {
	net.Conn
	file *os.File
	out  []byte // a block behind its header
}

// block sends a block whose bytes are in place.
func (g *giving) block(at int64, n uint32) error {
	binary.BigEndian.PutUint64(g.out, uint64(at))
	binary.BigEndian.PutUint32(g.out[8:], n)
	if err := g.SetDeadline(time.Now().Add(peerPatience)); err != nil {
		return err
	}
	if n >= unneeded { // no bytes follow
		n = 0
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

// give answers another receiver that asks for a file. Who does not know the copy has no answer.
func (r *Receiver) give(ctx context.Context, conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(peerPatience)); err != nil {
		return err
	}
	var asked request
	in := bufio.NewReaderSize(conn, maxHello)
	text, err := in.ReadSlice('\n')
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &asked); err != nil {
		return err
	}
	if !r.isOfTheCopy(&asked) {
		return errForeign
	}
	has, err := takeUnits(in, asked.Units)
	if err != nil {
		return err
	}
	g := &giving{Conn: conn, out: make([]byte, blockHeader+BlockBytes)}
	err = r.giveFile(ctx, g, &asked, has)
	if errors.Is(err, errUngiven) {
		return errors.Join(err, g.block(0, ungiven))
	}
	return err
}

// giveFile sends a file, or the units of which the other one has something else: blocks, each
// behind its offset and length.
func (r *Receiver) giveFile(ctx context.Context, g *giving, asked *request, has []sum) error {
	e, err := r.verifiedEntry(ctx, asked)
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
func (r *Receiver) verifiedEntry(ctx context.Context, asked *request) (*Entry, error) {
	for {
		e, ended, err := r.entryOf(asked)
		if err != nil || e != nil {
			return e, err
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(peerPatience):
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

// fetch gets the promised files of a batch. What it does not get is still lacking.
func (r *Receiver) fetch(x *batch) error {
	work, worked := r.work.Load(), time.Now()
	for i := range x.entries {
		p, promised := x.promises[i]
		if !promised || p.sum == nil { // the source has left it out
			continue
		}
		if w := r.work.Load(); w != work {
			work, worked = w, time.Now()
		}
		if time.Since(worked) >= maxVain { // for the source it would soon be one that does nothing
			break
		}
		got, err := r.fetchOne(x, i, &p)
		if err != nil {
			return err
		}
		if got {
			x.fetched = append(x.fetched, i)
		}
	}
	for _, address := range slices.Sorted(maps.Keys(r.givers)) {
		g := r.givers[address]
		if g.news.Files > 0 {
			r.Events(g.news)
		}
		g.news = Event{}
	}
	return nil
}

// fetchOne gets a file from one of those that have it.
func (r *Receiver) fetchOne(x *batch, i int, p *promise) (got bool, err error) {
	for _, address := range p.givers {
		g := r.givers[address]
		if g == nil {
			g = &given{left: peerPatience}
			r.givers[address] = g
		}
		if g.why != "" || len(r.refused()) >= maxRefused {
			continue
		}
		come, why := r.fetchFrom(address, g, x, i, p.sum)
		if errors.Is(why, errOfSeveral) { // nothing is left of it, so that one gives it whole
			come, why = r.fetchFrom(address, g, x, i, p.sum)
		}
		if err := r.goOn(0); err != nil {
			return false, err
		}
		var own *ownError
		switch {
		case errors.As(why, &own):
			return false, own.error
		case errors.Is(why, errUngiven):
			continue
		case why != nil:
			g.why = plainNet(why)
			r.Events(Event{Event: FromPeer, Host: address, Reason: g.why})
			continue
		}
		g.news = Event{Event: FromPeer, Host: address, Files: g.news.Files + 1, Bytes: g.news.Bytes + come}
		return true, nil
	}
	return false, nil
}

// refused are the addresses of the other receivers that have given nothing good.
func (r *Receiver) refused() (list []string) {
	for _, address := range slices.Sorted(maps.Keys(r.givers)) {
		if r.givers[address].why != "" {
			list = append(list, address)
		}
	}
	return list
}

// dial connects to a member of the group: no source makes this host connect to another one.
func (r *Receiver) dial(ctx context.Context, address string) (net.Conn, error) {
	at, err := netip.ParseAddrPort(address)
	if r.Member != nil && (err != nil || !r.Member(plainIP(at))) {
		return nil, fmt.Errorf("the box says that %q is no member of the group", address)
	}
	return r.Dial(ctx, address)
}

// ownError is one of this host, and not of another receiver.
type ownError struct{ error }

// errOfSeveral says that a file is not the source's of which a part was here, or came from somebody
// who gave up. Nobody knows whose part is wrong.
var errOfSeveral = errors.New("parts of several hosts are not what the source has")

// takes is how long bytes take at so many a second.
func takes(bytes int64, rate float64) time.Duration {
	return time.Duration(float64(bytes) / rate * float64(time.Second))
}

// fetchFrom gets a file, or what is lacking of it, and says how many bytes have come.
func (r *Receiver) fetchFrom(address string, g *given, x *batch, i int, sum []byte) (come int64, why error) {
	e, units := &x.entries[i], x.claims[i].Units
	var ahead time.Duration
	if units != nil { // the other one reads a unit before it says something of it
		ahead = takes(unitBytes(e.Size), slowestPeer)
	}
	due, reached := time.Now().Add(g.left+ahead), int64(0) // reached is how far the file has come
	defer func() { g.left = time.Until(due) - ahead }()
	ctx, cancel := context.WithDeadline(r.ctx, due)
	defer cancel()
	conn, err := r.dial(ctx, address)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	defer context.AfterFunc(r.ctx, func() { _ = conn.Close() })()
	defer func() {
		r.bytes.Add(-come)
		if why != nil && r.Target.file != nil && r.Target.file.entry == e {
			_ = r.Target.drop(units == nil) // what is wrong with it shows when the source sends it
		}
	}()
	if err := conn.SetDeadline(due); err != nil {
		return 0, err
	}
	if err := r.ask(conn, x, i, units); err != nil {
		return 0, err
	}
	in := bufio.NewReader(conn)
	buffer := make([]byte, BlockBytes)
	for {
		var h [blockHeader]byte
		if _, err := io.ReadFull(in, h[:]); err != nil {
			return come, err
		}
		at, n := int64(binary.BigEndian.Uint64(h[:])), int64(binary.BigEndian.Uint32(h[8:]))
		begin := time.Now()
		switch {
		case n == ungiven:
			return come, errUngiven
		case at < 0 || at > e.Size || n != unneeded && n > min(BlockBytes, e.Size-at) || units == nil && (n == unneeded || n == nothing && at < e.Size):
			return come, errForeign
		case n == unneeded:
			err = r.Target.upTo(e, at)
		case n == nothing && at < e.Size:
			err = r.Target.hole(e, at, min(unitBytes(e.Size), e.Size-at))
		case n > 0:
			if _, err := io.ReadFull(in, buffer[:n]); err != nil {
				return come, err
			}
			begin = time.Now()
			err = r.Target.data(e, at, buffer[:n])
			r.bytes.Add(n)
			come += n
		default:
			ok, err := r.Target.complete(e, sum)
			due = due.Add(time.Since(begin)) // the other one has done its part
			if err != nil {
				return come, &ownError{err}
			}
			if !ok {
				delete(x.claims, i) // nothing is left of it
				if units != nil {
					return come, errOfSeveral
				}
				return come, errors.New("what it has sent is not what the source has: its SHA-256 differs")
			}
			return come, nil
		}
		if err != nil {
			return come, &ownError{err}
		}
		if err := r.goOn(1); err != nil {
			return come, err
		}
		own := time.Since(begin)
		if n == unneeded {
			n = 0
		}
		if further := at + n - reached; further > 0 {
			reached += further
			// This host's disk is not the giver's, and is no slower than the source takes it for.
			due = due.Add(takes(further, slowestPeer) + min(own, takes(further, slowestDisk)))
			if most := time.Now().Add(peerPatience + ahead); due.After(most) { // what is fast may not rest later
				due = most
			}
			if err := conn.SetDeadline(due); err != nil {
				return come, err
			}
		}
	}
}

// ask asks another receiver for a file, of which these units are here.
func (r *Receiver) ask(conn net.Conn, x *batch, i int, units []sum) error {
	text, err := json.Marshal(request{Token: hex.EncodeToString(r.token[:]), Pass: r.pass, Batch: x.number, File: i, Units: len(units)})
	if err != nil {
		return err
	}
	text = append(text, '\n')
	for _, u := range units {
		var has [sha256.Size]byte
		copy(has[:], u)
		text = append(text, has[:]...)
	}
	_, err = conn.Write(text)
	return err
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
