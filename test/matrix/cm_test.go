package matrix

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/internal/matrix"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/roce"
	"github.com/rocast/rocast/roce/cm"
)

// cmPort is where the receivers' programs listen.
const cmPort = 7174

// cmLines are the lines of rocastd.yaml with which hosts connect by RDMA-CM.
func cmLines(c matrix.Cell, groupIP netip.Addr, hosts []*bed.Host) string {
	if !c.Is("addressing", "cm") {
		return ""
	}
	var receivers []string
	for _, h := range hosts[1 : len(hosts)-1] { // the last one is a source, if it takes part
		receivers = append(receivers, fmt.Sprintf("%q", h.IP))
	}
	memory := "private-data"
	if c.Is("regions", "table") {
		memory = "regions"
	}
	return fmt.Sprintf("cm:\n  - {groupIP: %q, port: %d, receivers: [%s], memory: %s, %s}\nengine: %s\n",
		groupIP, cmPort, strings.Join(receivers, ", "), memory, strings.Join(policyLines(c), ", "), c.Get("engine"))
}

// dialog is what a host's kernel and program say by RDMA-CM: the source connects, the others listen
// and accept. Its messages may be lost, so they are repeated.
type dialog struct {
	r      *run
	m      *member
	group  netip.Addr
	in     int // a socket that gets all frames
	out    int // a socket that sends by the kernel's routes
	closed atomic.Bool

	mu       sync.Mutex
	pair     cm.Pair   // of the newest connection
	peer     roce.QPN  // of the group
	cached   cm.MAD    // answers a message that comes again
	rep      *cm.REP   // of the group; nil: the source has none yet
	refused  string    // why the source is refused
	isOver   bool      // the connection has ended
	isDead   bool      // the host says nothing any more
	nextQPN  roce.QPN  // no queue pair has the number of an earlier one
	awaited  time.Time // when a message that has no answer is sent again
	numbered uint64    // of messages
}

func (r *run) openDialogs() {
	for _, m := range append(slices.Clone(r.members), r.spare) {
		d := &dialog{r: r, m: m, group: m.sees, nextQPN: m.qpn, isOver: true}
		r.check(m.NS.Do(func() error { return d.open(m.End.Index) }))
		m.dialog = d
		done := make(chan struct{})
		go func() { defer close(done); d.listen() }()
		r.t.Cleanup(func() {
			d.closed.Store(true)
			<-done
			_ = unix.Close(d.in)
			_ = unix.Close(d.out)
		})
	}
}

func (d *dialog) open(device int) (err error) {
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL<<8&0xFF00 // in the order of the network
	if d.in, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all); err != nil {
		return err
	}
	if err = unix.Bind(d.in, &unix.SockaddrLinklayer{Protocol: all, Ifindex: device}); err != nil {
		return err
	}
	if err = unix.SetsockoptTimeval(d.in, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000}); err != nil {
		return err
	}
	family := unix.AF_INET
	if d.m.IP.Is6() {
		family = unix.AF_INET6
	}
	d.out, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW) // the header is ours
	return err
}

// say sends a message. It may be lost, as on any link.
func (d *dialog) say(mad cm.MAD) {
	if d.isDead {
		return
	}
	const etherBytes, srcPort = 14, 0xC000
	ip := roce.IPUDP{Src: d.m.IP, Dst: d.group, HopLimit: 64, ID: 1, SrcPort: srcPort}
	frame := ip.Append(roce.AppendEthernet(nil, roce.MAC{}, roce.MAC{}, ip.EtherType()), cm.TransportBytes)
	frame, err := roce.AppendICRC(mad.Append(frame, 1))
	if err != nil {
		d.r.t.Error(err)
		return
	}
	var to unix.Sockaddr = &unix.SockaddrInet6{Addr: d.group.As16()}
	if d.group.Is4() {
		to = &unix.SockaddrInet4{Addr: d.group.As4()}
	}
	_ = unix.Sendto(d.out, frame[etherBytes:], 0, to) // as if it were lost
}

func (d *dialog) listen() {
	b := make([]byte, 1<<16)
	for !d.closed.Load() {
		n, from, err := unix.Recvfrom(d.in, b, 0)
		if err != nil {
			continue // nothing has come for a while
		}
		if at, ok := from.(*unix.SockaddrLinklayer); ok && at.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		if mad, err := cm.Decode(b[:n]); err == nil {
			d.mu.Lock()
			d.hear(&mad)
			d.mu.Unlock()
		}
	}
}

func (d *dialog) hear(mad *cm.MAD) {
	answer := func(m cm.Message) { d.say(cm.MAD{Header: mad.Header, Message: m}) }
	switch m := mad.Message.(type) {
	case *cm.REQ:
		if d.pair.Remote != m.LocalCommID {
			d.accept(m, mad.Header)
		}
		d.say(d.cached)
	case *cm.REP:
		if m.Remote == d.pair.Local && d.rep == nil {
			d.rep = m
		}
		if d.cached.Message != nil && d.rep != nil && m.Pair == d.rep.Pair { // a question whether the source is there
			d.say(d.cached)
		}
	case *cm.REJ:
		if m.Remote == d.pair.Local {
			d.refused = fmt.Sprintf("%v: %s", m.Reason, strings.TrimRight(string(m.PrivateData[:]), "\x00"))
			d.isOver = true
		}
	case *cm.DREQ:
		answer(&cm.DREP{Pair: cm.Pair{Local: m.Remote, Remote: m.Local}})
		if m.Remote == d.pair.Local {
			d.isOver = true
		}
	case *cm.DREP:
		if m.Remote == d.pair.Local {
			d.isOver = true
		}
	}
}

// begin takes the numbers of a new connection.
func (d *dialog) begin() {
	if d.m.qp != nil {
		d.m.qp.Destroy()
	}
	d.pair, d.rep, d.refused, d.isOver, d.cached = cm.Pair{Local: d.pair.Local + 1}, nil, "", false, cm.MAD{}
	d.m.qpn, d.nextQPN = d.nextQPN, d.nextQPN+0x100
	d.numbered++
}

// accept is what the program of a receiver does with a request.
func (d *dialog) accept(req *cm.REQ, header cm.Header) {
	d.begin()
	d.pair.Remote, d.peer, d.m.sends = req.LocalCommID, req.QPN, req.StartingPSN
	ctx, cancel := context.WithTimeout(d.r.t.Context(), patience)
	defer cancel()
	if err := d.r.open(ctx, d.m, uint32(req.QPN)); err != nil {
		d.r.t.Errorf("%v accepts: %v", d.m.IP, err)
		return
	}
	rep := &cm.REP{Pair: d.pair, QPN: d.m.qpn, StartingPSN: d.m.expects, CAGUID: d.guid(), RNRRetry: 7}
	at := d.m.at(d.r.c, parts(d.r.c)[0])
	binary.BigEndian.PutUint64(rep.PrivateData[:], at.VA)
	binary.BigEndian.PutUint32(rep.PrivateData[8:], at.RKey)
	binary.BigEndian.PutUint32(rep.PrivateData[12:], memoryBytes)
	d.cached = cm.MAD{Header: header, Message: rep}
}

func (d *dialog) guid() uint64 { return uint64(d.m.number + 1) }

// connectCM connects a source to the group's IP, as a program does that knows nothing of groups.
func (r *run) connectCM(source *member) {
	r.t.Helper()
	d := source.dialog
	d.mu.Lock()
	d.begin()
	req := &cm.REQ{
		LocalCommID: d.pair.Local, ServiceID: cm.ServiceID(cmPort), CAGUID: d.guid(), QPN: source.qpn, Responder: 1, Initiator: 1,
		PeerCMTimeout: 20, StartingPSN: source.expects, CMTimeout: 20, RetryCount: 7, PKey: roce.DefaultPKey,
		PathMTU: map[int]uint8{256: 1, 1024: 3, 4096: 5}[mtuOf(r.c)], RNRRetry: 7, MaxCMRetries: 15,
		Primary: cm.Path{LocalGID: cm.GIDOf(source.IP), RemoteGID: cm.GIDOf(d.group), HopLimit: 64, ACKTimeout: 15},
	}
	header := cm.IPHeader{Src: source.IP, Dst: d.group, SrcPort: 50000}
	header.Put(&req.PrivateData)
	tid := cm.Header{TID: d.numbered}
	d.mu.Unlock()
	r.insist(d, "the source is connected", cm.MAD{Header: tid, Message: req}, func() bool { return d.rep != nil || d.refused != "" })
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refused != "" {
		r.t.Fatalf("%v is refused: %s\n%s", source.IP, d.refused, r.state())
	}
	d.pair.Remote, d.peer, source.sends = d.rep.Local, d.rep.QPN, d.rep.StartingPSN
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	r.check(r.open(ctx, source, uint32(d.peer)))
	d.cached = cm.MAD{Header: tid, Message: &cm.RTU{Pair: d.pair}}
	d.say(d.cached)
	r.name = fmt.Sprintf("cm-%s-%d", strings.ReplaceAll(d.group.String(), ":", "-"), d.peer)
	r.ready()
	if r.c.Is("regions", "table") {
		_, err := r.boxes[0].Client().AddRegions(ctx, r.name, table(r.c, r.receivers()))
		r.check(err)
	}
}

// insist repeats a message until something is so.
func (r *run) insist(d *dialog, what string, mad cm.MAD, done func() bool) {
	r.t.Helper()
	r.eventually(what, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		if done() {
			return true
		}
		if now := time.Now(); now.After(d.awaited) {
			d.awaited = now.Add(300 * time.Millisecond)
			d.say(mad)
		}
		return false
	})
}

// disconnect ends the connection of a host.
func (r *run) disconnect(m *member) {
	r.t.Helper()
	d := m.dialog
	d.mu.Lock()
	mad := cm.MAD{Header: cm.Header{TID: d.numbered}, Message: &cm.DREQ{Pair: d.pair, RemoteQPN: d.peer}}
	d.mu.Unlock()
	r.insist(d, fmt.Sprintf("%v is disconnected", m.IP), mad, func() bool { return d.isOver })
}

// allHear waits until all hosts have heard that the connection has ended.
func (r *run) allHear() {
	r.t.Helper()
	for _, m := range r.members {
		r.eventually(fmt.Sprintf("%v hears that the connection has ended", m.IP), func() bool {
			m.dialog.mu.Lock()
			defer m.dialog.mu.Unlock()
			return m.dialog.isOver
		})
	}
}

// cmEvent lets an event happen that connections meet in a way of their own. The source's transfer
// ends with its connection, and it connects again.
func (r *run) cmEvent(b *box, last *member) (is bool) {
	r.t.Helper()
	switch event := r.c.Get("event"); {
	case event == "restart":
		r.check(b.stop())
		r.allHear() // before the daemon has ended
		r.begin(b)
	case event == "kill":
		r.ends(b, b.kill)
	case event == "leave" && r.c.Is("ack", "all"):
		r.disconnect(last)
		r.allHear()
	case event == "leave":
		r.disconnect(last)
		r.gone[last] = true
		r.members = slices.DeleteFunc(r.members, func(m *member) bool { return m == last })
		r.eventually("the receiver has left the group", func() bool {
			for _, m := range r.group().Members {
				if m.IP == last.IP.String() {
					return false
				}
			}
			return true
		})
		return true
	case event == "source-dies":
		d := r.members[0].dialog
		d.mu.Lock()
		d.isDead = true
		d.mu.Unlock()
		r.members[0].qp.Destroy()
		r.members[0] = r.spare
	default:
		return false
	}
	r.again = true
	r.abort()
	return true
}

// targetCM is where a source WRITEs a part: the box has told it in the private data.
func (r *run) targetCM(p part) rnic.Remote {
	d := r.members[0].dialog
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.c.Is("regions", "table") {
		return p.virtual()
	}
	return rnic.Remote{VA: binary.BigEndian.Uint64(d.rep.PrivateData[:]) + uint64(p.from), RKey: binary.BigEndian.Uint32(d.rep.PrivateData[8:])}
}

// nothingStaysOfCM ends the connection and then the service.
func (r *run) nothingStaysOfCM() {
	r.t.Helper()
	r.disconnect(r.members[0])
	r.eventually("the group of the connection is gone", func() bool {
		g, err := r.boxes[0].Client().Groups(r.t.Context())
		if err != nil {
			return false
		}
		for _, one := range g.Groups {
			if one.Name == r.name {
				return false
			}
		}
		return true
	})
	_, err := r.boxes[0].Client().CMDown(r.t.Context(), r.members[0].sees.String())
	r.check(err)
}
