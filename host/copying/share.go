package copying

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
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
	// maxGiven is how many others are given something at a time. Each takes memory for a block and
	// two descriptors, and anybody may connect.
	maxGiven = 64
)

// given is what has come from another receiver.
type given struct {
	took  time.Duration
	bytes int64
	why   string // it is not asked any more
	news  Event  // what has come since the last event
}

// rest is how long the next bytes may take.
func (g *given) rest(bytes int64) time.Duration {
	return peerPatience + time.Duration(float64(g.bytes+bytes)/slowestPeer*float64(time.Second)) - g.took
}

// request is what a receiver asks of another one: a file of the batch that both have listed.
type request struct {
	Token string `json:"token"`
	Pass  uint32 `json:"pass"`
	Batch uint64 `json:"batch"`
	File  int    `json:"file"`
}

// promise is a file that other receivers have.
type promise struct {
	givers []string // addresses
	sum    []byte   // of the source; nil: it has not come
}

// relay lets other receivers give what is to be sent, where at least as many have a file as lack
// it, and who lacks it has no part of it: if it comes from nobody, the source sends no more than
// otherwise.
func (s *peers) relay(asked []*peer, entries []Entry, plan map[int]wanted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range entries {
		w, planned := plan[i]
		if !planned || w.none || entries[i].Size == 0 {
			continue
		}
		lack, alone := 0, false
		var givers []giver
		for _, p := range asked {
			if p.gone || p.have == nil {
				continue
			}
			c := p.have.Files[i]
			switch {
			case !p.have.All && c.Whole == nil:
				lack++
				alone = alone || p.shares == "" || c.Units != nil
			case p.shares != "":
				givers = append(givers, giver{p.shares, c.Whole})
			}
		}
		if alone || lack > len(givers) || len(givers) == 0 { // who lacks it may have gone meanwhile
			continue
		}
		first := i % len(givers) // each one gives some of the files
		plan[i] = wanted{none: true, givers: slices.Concat(givers[first:], givers[:first])}
	}
}

// giver is a receiver that has a file, or has something that it takes for the file.
type giver struct {
	address string
	whole   sum // what it has; nil: this process has verified it
}

// givesAt is where a receiver says that it gives files, or nothing if that is no address. Others
// get it as a word of a list, and one that cannot read the list ends.
func givesAt(said string) string {
	if _, err := netip.ParseAddrPort(said); err != nil || strings.Contains(said, " ") {
		return ""
	}
	return said
}

// haveThis lists the addresses of receivers that have what the source has.
func haveThis(givers []giver, sum []byte) string {
	var list []string
	for _, g := range givers {
		if len(list) < maxGivers && (g.whole == nil || bytes.Equal(g.whole, sum)) {
			list = append(list, g.address)
		}
	}
	return strings.Join(list, " ")
}

// serve answers other receivers until the listener is closed.
func (r *Receiver) serve(ctx context.Context) {
	free := make(chan struct{}, maxGiven)
	for {
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
			return
		}
		conn, err := r.Peers.Accept()
		if err != nil {
			return // others get what they lack from the source
		}
		r.tasks.Go(func() {
			defer func() { <-free }()
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			_ = r.give(conn) // the other one notices
			_ = conn.Close()
		})
	}
}

// give sends the file that another receiver asks for: its blocks, each behind its offset and
// length. Holes are left out, and a block without bytes ends it.
func (r *Receiver) give(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(peerPatience)); err != nil {
		return err
	}
	var asked request
	if err := json.NewDecoder(io.LimitReader(conn, maxHello)).Decode(&asked); err != nil {
		return err
	}
	e, err := r.entryOf(&asked)
	if err != nil {
		return err
	}
	f, err := r.Target.openSame(e.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() != e.Size {
		return errors.Join(errChanged, err)
	}
	out := make([]byte, blockHeader+BlockBytes)
	block := func(at int64, n int) error {
		binary.BigEndian.PutUint64(out, uint64(at))
		binary.BigEndian.PutUint32(out[8:], uint32(n))
		if err := conn.SetDeadline(time.Now().Add(peerPatience)); err != nil {
			return err
		}
		_, err := conn.Write(out[:blockHeader+n])
		return err
	}
	for at := int64(0); at < e.Size; {
		data := nextData(f, at, e.Size)
		for at = data.from; at < data.to; {
			n := int(min(data.to-at, BlockBytes))
			if _, err := io.ReadFull(io.NewSectionReader(f, at, int64(n)), out[blockHeader:blockHeader+n]); err != nil {
				return err
			}
			if err := block(at, n); err != nil {
				return err
			}
			at += int64(n)
		}
	}
	return block(e.Size, 0)
}

// blockHeader is the offset and the length of a block.
const blockHeader = 12

// entryOf finds the entry that a request means. Only a file that is here is given, and no name
// comes from another receiver.
func (r *Receiver) entryOf(asked *request) (*Entry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := &r.batch
	here := asked.Token == hex.EncodeToString(r.token[:]) && r.line != nil && asked.Pass == r.pass &&
		x.listed && asked.Batch == x.number && asked.File >= 0 && asked.File < len(x.entries) &&
		x.entries[asked.File].Kind == File &&
		(x.skipped || x.claims[asked.File].Whole != nil || x.states[asked.File] == verified)
	if !here {
		return nil, errForeign
	}
	e := x.entries[asked.File]
	return &e, nil
}

// fetch gets the promised files of a batch. What it does not get is still lacking.
func (r *Receiver) fetch(x *batch) error {
	for i := range x.entries {
		p, promised := x.promises[i]
		if !promised || p.sum == nil { // the source has left it out
			continue
		}
		got, err := r.fetchOne(x, i, &p)
		if err != nil {
			return err
		}
		if got {
			x.fetched = append(x.fetched, i)
		} else {
			x.alone = true
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
			g = &given{}
			r.givers[address] = g
		}
		if g.why != "" {
			continue
		}
		begin := time.Now()
		why := r.fetchFrom(address, x, i, p.sum, begin.Add(g.rest(x.entries[i].Size)))
		g.took += time.Since(begin)
		if err := r.goOn(0); err != nil {
			return false, err
		}
		var own *ownError
		if errors.As(why, &own) {
			return false, own.error
		}
		if why != nil {
			g.why = plainNet(why)
			r.Events(Event{Event: FromPeer, Host: address, Reason: g.why})
			continue
		}
		n := x.entries[i].Size
		g.bytes += n
		g.news = Event{Event: FromPeer, Host: address, Files: g.news.Files + 1, Bytes: g.news.Bytes + n}
		return true, nil
	}
	return false, nil
}

// ownError is one of this host, and not of another receiver.
type ownError struct{ error }

func (r *Receiver) fetchFrom(address string, x *batch, i int, sum []byte, end time.Time) (why error) {
	e := &x.entries[i]
	ctx, cancel := context.WithTimeout(r.ctx, min(peerPatience, time.Until(end)))
	defer cancel()
	conn, err := r.Dial(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(r.ctx, func() { _ = conn.Close() })()
	var come int64
	defer func() {
		r.bytes.Add(-come)
		if why != nil && r.Target.file != nil && r.Target.file.entry == e {
			_ = r.Target.drop(true) // what is wrong with it shows when the source sends it
		}
	}()
	deadline := func() error {
		next := time.Now().Add(peerPatience)
		if next.After(end) {
			next = end
		}
		return conn.SetDeadline(next)
	}
	if err := deadline(); err != nil {
		return err
	}
	asked := request{Token: hex.EncodeToString(r.token[:]), Pass: r.pass, Batch: x.number, File: i}
	if err := json.NewEncoder(conn).Encode(asked); err != nil {
		return err
	}
	in := bufio.NewReader(conn)
	buffer := make([]byte, BlockBytes)
	for {
		var h [blockHeader]byte
		if _, err := io.ReadFull(in, h[:]); err != nil {
			return err
		}
		at, n := int64(binary.BigEndian.Uint64(h[:])), int64(binary.BigEndian.Uint32(h[8:]))
		if n == 0 {
			break
		}
		if n > BlockBytes || at < 0 || at > e.Size-n {
			return errForeign
		}
		if _, err := io.ReadFull(in, buffer[:n]); err != nil {
			return err
		}
		if err := r.Target.data(e, at, buffer[:n]); err != nil {
			return &ownError{err}
		}
		r.bytes.Add(n)
		come += n
		if err := r.goOn(1); err != nil {
			return err
		}
		if err := deadline(); err != nil {
			return err
		}
	}
	ok, err := r.Target.complete(e, sum)
	switch {
	case err != nil:
		return &ownError{err}
	case !ok:
		return errors.New("what it has sent is not what the source has: its SHA-256 differs")
	}
	return nil
}

// takeGivers takes the addresses of a record.
func takeGivers(b []byte) ([]string, error) {
	list := strings.Split(string(b), " ")
	if len(list) > maxGivers {
		return nil, fmt.Errorf("%w: %d receivers are to give one file", errForeign, len(list))
	}
	return list, nil
}
