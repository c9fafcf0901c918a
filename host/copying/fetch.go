package copying

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"time"
)

// A receiver asks one of the others at a time, for all files that this one is to give, on one
// connection: on a link with a delay each file takes no longer than its bytes need.

const (
	// peerPatience is what another receiver may take longer in the whole copy than at
	// slowestPeer bytes a second. The time in which this receiver waits for it counts, and not
	// the time in which this receiver writes and hashes. So a link may have a delay and lose
	// packets, and a giver that sends a byte now and then has no more time than one that sends
	// none.
	peerPatience = 5 * time.Second
	slowestPeer  = 2 << 20
	// fileBytes is what a file counts for beside its bytes: the request, the headers, the names.
	fileBytes = 4 << 10
	// batchPatience is what a receiver that has given something gets back for the next batch: a
	// connection is set up anew, over a link on which its first packets may be lost.
	batchPatience = time.Second
	// unitPatience bounds what another one may take to read a unit of a huge file before it says
	// something of it. A receiver that takes no message for 30 s breaks the group.
	unitPatience = 2 * peerPatience
	maxGivers    = 2
	// maxRefused is how many of the others may give nothing good until a receiver asks none any
	// more.
	maxRefused = 4
	// maxVain is how long a receiver asks for files of a batch of which nothing comes, whoever has
	// them: those that say that they do not give a file are not refused.
	maxVain = (maxRefused - 1) * peerPatience
	// maxAddress bounds what is kept of an address: an IP, an interface and a port in brackets.
	maxAddress = 64
)

// given is what has come from another receiver.
type given struct {
	left time.Duration // how long it may take beyond what its bytes need; peerPatience at most
	why  string        // it is not asked any more
	news Event         // what has come since the last event
}

// request is what a receiver asks of another one: a file of the batch that both have listed. Any
// number of requests come on a connection, and are answered in their order. A receiver of an
// earlier version ends the connection after the first answer.
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

// ownError is one of this host, and not of another receiver.
type ownError struct{ error }

// endError is an end of a connection that the other one may have good reason for.
type endError struct {
	error
	own bool // this host has read nothing for long, and otherwise no byte of the answer has come
}

func (e *endError) Unwrap() error { return e.error }

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// errOfSeveral says that a file is not the source's of which a part was here, or came from somebody
// who gave up. Nobody knows whose part is wrong.
var errOfSeveral = errors.New("parts of several hosts are not what the source has")

// takes is how long bytes take at so many a second.
func takes(bytes int64, rate float64) time.Duration {
	return time.Duration(float64(bytes) / rate * float64(time.Second))
}

// longestFetch is how long a file takes at most if it comes from another receiver: to come at
// slowestPeer, and to be written at slowestDisk. One block more is for what a file takes whatever
// its size is.
func longestFetch(size int64) time.Duration {
	return peerPatience + takes(size, slowestPeer) + ownTime(size)
}

func ownTime(size int64) time.Duration { return takes(size+BlockBytes, slowestDisk) }

// fetching gets the promised files of a batch.
type fetching struct {
	*Receiver
	x     *batch
	files []int       // that may still come
	giver map[int]int // which of its givers is to give a file
	most  time.Time   // the source gets its answer some seconds later

	seen   int64 // work of the receiver
	worked time.Time
}

// fetch gets the promised files of a batch. What it does not get is still lacking.
func (r *Receiver) fetch(x *batch) error {
	f := &fetching{Receiver: r, x: x, giver: map[int]int{}, worked: time.Now(), seen: r.work.Load()}
	var bytes int64
	for i := range x.entries {
		if x.promises[i].sum != nil { // otherwise the source has left it out
			f.files = append(f.files, i)
			bytes += x.entries[i].Size
		}
	}
	if len(f.files) > 0 { // otherwise all would ask the same one first, and all the next one after it
		n := rand.N(len(f.files))
		f.files = slices.Concat(f.files[n:], f.files[:n])
	}
	f.most = time.Now().Add((maxRefused+1)*peerPatience + takes(2*bytes, slowestDisk)) // less than Source.longest
	for len(f.files) > 0 {
		address, known := f.address(f.files[0])
		if !known {
			f.files = f.files[1:]
			continue
		}
		if err := f.from(address, r.givers[address]); err != nil {
			return err
		}
	}
	for _, address := range slices.Sorted(maps.Keys(r.givers)) {
		g := r.givers[address]
		if g.news.Files > 0 {
			g.earn(batchPatience, 0)
			r.Events(g.news)
		}
		g.news = Event{}
	}
	return nil
}

// giver is the address that is to give a file, if there is still one.
func (f *fetching) address(i int) (address string, known bool) {
	givers := f.x.promises[i].givers
	for ; f.giver[i] < len(givers); f.giver[i]++ {
		address := givers[f.giver[i]]
		if f.givers[address] == nil {
			f.givers[address] = &given{left: peerPatience}
		}
		if f.givers[address].why == "" && f.refusedCount() < maxRefused {
			return address, true
		}
	}
	return "", false
}

// has notes that a file is here.
func (f *fetching) has(i int) {
	f.x.fetched = append(f.x.fetched, i)
	f.giver[i] = len(f.x.promises[i].givers)
}

// inTime reports whether a file can come before the source has to be answered. A receiver that does
// nothing for long would be one that has gone, for the source.
func (f *fetching) inTime(i int) bool {
	if w := f.work.Load(); w != f.seen {
		f.seen, f.worked = w, time.Now()
	}
	return time.Since(f.worked) < maxVain && time.Until(f.most) > longestFetch(f.x.entries[i].Size)
}

// from gets what one of the others is to give, on one connection. Each time a file has come, or is
// no longer asked of this one, or is asked of it as a whole and no more in parts.
func (f *fetching) from(address string, g *given) error {
	var files []int
	for _, i := range f.files {
		if a, known := f.address(i); known && a == address {
			files = append(files, i)
		}
	}
	if !f.inTime(files[0]) {
		f.files = nil
		return nil
	}
	a, err := f.connect(address, g)
	if err != nil {
		f.refuse(address, g, err)
		return f.goOn(0)
	}
	defer a.Close()
	defer context.AfterFunc(f.ctx, func() { _ = a.Close() })()
	first, rest, err := f.requests(files)
	if err != nil {
		return err
	}
	texts := make(chan []byte, 2)
	defer close(texts)
	f.tasks.Go(func() { // the other one reads no request while it waits for what is read here
		for text := range texts {
			if _, err := a.Write(text); err != nil { // so ends what is read
				return
			}
		}
	})
	texts <- first
	none := true  // of the files has come on this connection
	late := false // it has waited until it knew that it does not give a file
	for n, i := range files {
		if n > 0 && !f.inTime(i) {
			f.files = nil
			return nil
		}
		come, why := a.file(f, i)
		if err := f.goOn(0); err != nil {
			return err
		}
		var own *ownError
		var end *endError
		switch {
		case why == nil:
			f.has(i)
			none = false
			g.news = Event{Event: FromPeer, Host: address, Files: g.news.Files + 1, Bytes: g.news.Bytes + come}
		case errors.As(why, &own):
			return own.error
		case errors.Is(why, errUngiven):
			if f.giver[i]++; !late {
				late = true
				g.earn(soon, 0)
			}
		case errors.Is(why, errOfSeveral):
			none = false // left of the parts: that one gives the file whole, on the next connection
		case errors.As(why, &end) && (n > 0 || end.own):
			// It serves others, is of an earlier version, or has given up on this host. Who has
			// given something is asked again.
			for _, i := range files[n:] {
				if none {
					f.giver[i]++
				}
			}
			return nil
		default:
			f.refuse(address, g, why)
			return nil
		}
		if n == 0 {
			texts <- rest
		}
	}
	return nil
}

// refuse notes why a receiver is not asked any more.
func (f *fetching) refuse(address string, g *given, why error) {
	if g.why = plainNet(why); isTimeout(why) {
		g.why = fmt.Sprintf("timeout: it has fallen %v behind %d MiB a second", peerPatience, slowestPeer>>20)
	}
	f.Events(Event{Event: FromPeer, Host: address, Reason: g.why})
}

// refusedCount is how many of the other receivers have given nothing good.
func (r *Receiver) refusedCount() (n int) {
	for _, g := range r.givers {
		if g.why != "" {
			n++
		}
	}
	return n
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

// requests are those for some files: the first one, and all others. A receiver of an earlier
// version cannot take more than one.
func (f *fetching) requests(files []int) (first, rest []byte, err error) {
	for n, i := range files {
		units := f.x.claims[i].Units
		text, err := json.Marshal(request{
			Token: hex.EncodeToString(f.token[:]), Pass: f.pass, Batch: f.x.number, File: i, Units: len(units),
		})
		if err != nil {
			return nil, nil, err
		}
		text = append(text, '\n')
		for _, u := range units {
			var has [sha256.Size]byte
			copy(has[:], u)
			text = append(text, has[:]...)
		}
		if n == 0 {
			first = text
		} else {
			rest = append(rest, text...)
		}
	}
	return first, rest, nil
}

// asking is a connection to another receiver. Whatever is read of it takes of the time that this
// one has left.
type asking struct {
	net.Conn
	*given
	in     *bufio.Reader
	buffer []byte // of a block
	read   time.Time
	rested time.Duration // the longest time in which this host has read nothing
}

func (f *fetching) connect(address string, g *given) (*asking, error) {
	ctx, cancel := context.WithTimeout(f.ctx, g.left)
	defer cancel()
	begin := time.Now()
	conn, err := f.dial(ctx, address)
	g.left -= time.Since(begin)
	switch {
	case isTimeout(err):
		return nil, errors.New("timeout: it has taken no connection")
	case err != nil:
		return nil, err
	}
	a := &asking{Conn: conn, given: g, buffer: make([]byte, BlockBytes), read: time.Now()}
	a.in = bufio.NewReader(a)
	return a, nil
}

func (a *asking) Read(b []byte) (int, error) {
	begin := time.Now()
	a.rested = max(a.rested, begin.Sub(a.read))
	if err := a.SetReadDeadline(begin.Add(a.left)); err != nil {
		return 0, err
	}
	n, err := a.Conn.Read(b)
	a.read = time.Now()
	a.left -= a.read.Sub(begin)
	return n, err
}

// ended is the error of a read inside an answer. Where this host has read nothing for so long that
// the other one ends the connection, that one is not to blame.
func (a *asking) ended(err error) error {
	if a.rested >= peerPatience && !isTimeout(err) {
		return &endError{err, true}
	}
	return err
}

// earn gives a receiver more time, for what it has given. What is fast may not rest later.
func (g *given) earn(more, ahead time.Duration) { g.left = min(g.left+more, peerPatience+ahead) }

// file gets a file, or what is lacking of it, and says how many bytes have come.
func (a *asking) file(f *fetching, i int) (come int64, why error) {
	e, units := &f.x.entries[i], f.x.claims[i].Units
	var ahead time.Duration
	if units != nil { // the other one reads a unit before it says something of it
		ahead = min(takes(unitBytes(e.Size), slowestPeer), unitPatience)
	}
	a.left += ahead
	own := ownTime(e.Size) // of this host, which is no slower than the source takes it for
	defer func() {
		a.left -= ahead
		f.bytes.Add(-come)
		if why != nil && f.Target.file != nil && f.Target.file.entry == e {
			_ = f.Target.drop(units == nil) // what is wrong with it shows when the source sends it
		}
	}()
	switch _, err := a.in.Peek(1); {
	case isTimeout(err):
		return 0, err
	case err != nil:
		return 0, &endError{error: err}
	}
	for reached := int64(0); ; {
		var h [blockHeader]byte
		if _, err := io.ReadFull(a.in, h[:]); err != nil {
			return come, a.ended(err)
		}
		at, n := int64(binary.BigEndian.Uint64(h[:])), int64(binary.BigEndian.Uint32(h[8:]))
		begin := time.Now()
		var err error
		switch {
		case n == ungiven:
			return come, errUngiven
		case at < 0 || at > e.Size || n != unneeded && n > min(BlockBytes, e.Size-at) || units == nil && (n == unneeded || n == nothing && at < e.Size):
			return come, errForeign
		case n == unneeded:
			n = 0
			err = f.Target.upTo(e, at)
		case n == nothing && at < e.Size:
			err = f.Target.hole(e, at, min(unitBytes(e.Size), e.Size-at))
		case n > 0:
			if _, err := io.ReadFull(a.in, a.buffer[:n]); err != nil {
				return come, a.ended(err)
			}
			begin = time.Now()
			err = f.Target.data(e, at, a.buffer[:n])
			f.bytes.Add(n)
			come += n
		default:
			a.earn(takes(fileBytes, slowestPeer), ahead)
			return come, f.complete(i)
		}
		if err != nil {
			return come, &ownError{err}
		}
		if err := f.goOn(1); err != nil {
			return come, err
		}
		if own -= time.Since(begin); own < 0 { // such as a byte of a block, many times
			a.left += own
			own = 0
		}
		if further := at + n - reached; further > 0 {
			reached += further
			a.earn(takes(further, slowestPeer), ahead)
		}
	}
}

// complete gives a file that has come its name, if it is the source's.
func (f *fetching) complete(i int) error {
	lacked := f.x.claims[i].Units != nil
	ok, err := f.Target.complete(&f.x.entries[i], f.x.promises[i].sum)
	switch {
	case err != nil:
		return &ownError{err}
	case ok:
		return nil
	}
	delete(f.x.claims, i) // nothing is left of it
	if lacked {
		return errOfSeveral
	}
	return errors.New("what it has sent is not what the source has: its SHA-256 differs")
}
