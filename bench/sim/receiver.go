package sim

import (
	"bytes"
	"time"

	"github.com/rocast/rocast/bench/rnic"
)

// receiver is one receiving host: its queue pair, its memory, and the program that gives receives to it.
type receiver struct {
	*Host
	qp       *rnic.QP
	number   int // as a host: from 1
	toSwitch link
	toHost   link

	regions  rnic.Memory
	memory   []byte // what WRITEs go to
	inbox    []byte // what SENDs go to
	posted   int    // receives
	received int    // receives that completed
	owed     int    // receives that the program will give back
	storm    int    // faults that keep it from doing so
	crashed  bool
	unheard  uint64 // frames that came after that
	keyLost  bool
	evicted  bool
	heard    int32         // highest PSN it answered with that reached the switch, as a number of packets
	heardAt  time.Duration // and when it did
	executed int           // packets, as the queue pair counts them
}

// Every receiver has the memory at its own place, under its own keys.
func receiverRegion(number, region int) rnic.Remote {
	return rnic.Remote{VA: uint64(number)<<40 | uint64(region)<<32, RKey: uint32(number)<<8 | uint32(region)}
}

// The source's view of the group's memory.
const (
	virtualVA   = 0x5500_0000_0000
	virtualRKey = 0xABCD00
)

// virtual is what the source puts into the RETH of m.
func (w *world) virtual(m *Message) rnic.Remote {
	if w.s.Regions == 0 {
		to := receiverRegion(0, 0)
		to.VA += uint64(m.Place)
		return to
	}
	r := uint32(w.region(m.Place))
	return rnic.Remote{VA: virtualVA + uint64(m.Place), RKey: virtualRKey + r}
}

// region is which of the group's regions byte place of the memory lies in.
func (w *world) region(place int) int {
	if w.s.Regions == 2 && place >= w.s.MemoryBytes/2 {
		return 1
	}
	return 0
}

// span is where region r of the memory begins and ends.
func (w *world) span(r int) (from, to int) {
	switch {
	case w.s.Regions < 2:
		return 0, w.s.MemoryBytes
	case r == 0:
		return 0, w.s.MemoryBytes / 2
	}
	return w.s.MemoryBytes / 2, w.s.MemoryBytes
}

func (w *world) openReceiver(r *receiver, number int, h *Host) error {
	memory, inbox := cleared(r.memory, w.s.MemoryBytes), cleared(r.inbox, w.plan.inbox)
	*r = receiver{Host: h, number: number, memory: memory, inbox: inbox, heard: -1}
	r.toSwitch.reset(&h.ToSwitch, number, true)
	r.toHost.reset(&h.ToHost, number, false)
	if err := w.register(r); err != nil {
		return err
	}
	cfg := rnic.Config{
		MAC: hostMAC(number), IP: w.address(number), QPN: hostQPN(number), MTUBytes: w.s.MTUBytes,
		MinRNRTimer: h.RNRTimer, SendDepth: 1, RecvDepth: h.Receives,
	}
	var err error
	if r.qp, err = rnic.NewQP(cfg, &r.regions); err != nil {
		return err
	}
	path := w.pathOf(number)
	peer := rnic.Peer{MAC: switchMAC, IP: path.Src, QPN: path.RemoteQPN, PSN: h.FirstPSN}
	if err := r.qp.Connect(peer); err != nil {
		return err
	}
	for range h.Receives {
		w.giveBack(r)
	}
	return nil
}

// register makes the group's memory known, at this receiver's place and under its keys.
func (w *world) register(r *receiver) error {
	for k := range max(1, w.s.Regions) {
		at := w.keyOf(r.number, k)
		from, to := w.span(k)
		err := r.regions.Register(rnic.Region{VA: at.VA, RKey: at.RKey, Access: rnic.RemoteWrite, Bytes: r.memory[from:to]})
		if err != nil {
			return err
		}
	}
	return nil
}

// keyOf is region k at a receiver. Where RETHs pass unchanged all receivers have to agree.
func (w *world) keyOf(number, k int) rnic.Remote {
	if w.s.Regions == 0 {
		return receiverRegion(0, 0)
	}
	return receiverRegion(number, k)
}

func cleared(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	b = b[:n]
	clear(b)
	return b
}

// giveBack posts the next receive: the buffer of the next SEND, or of a WRITE with immediate, which needs none.
func (w *world) giveBack(r *receiver) {
	var buf []byte
	if i := w.plan.taker(r.posted); i >= 0 && w.s.Messages[i].isSend() {
		buf = r.inbox[w.plan.messages[i].inbox:][:w.s.Messages[i].Bytes]
	}
	if err := r.qp.PostRecv(uint64(r.posted), buf); err != nil {
		panic("sim: post receive: " + err.Error()) // the program keeps to the queue's depth
	}
	r.posted++
}

// reposted is a receive's way back to the queue pair.
func (w *world) reposted(r *receiver) {
	r.owed++
	w.repostOwed(r)
}

func (w *world) repostOwed(r *receiver) {
	for r.storm == 0 && r.owed > 0 && r.qp.State() == rnic.StateReady {
		r.owed--
		w.giveBack(r)
	}
}

// toReceiver hands frame i to receiver r, and its answer to the link.
func (w *world) toReceiver(r *receiver, i int32) {
	f := w.pool.frames[i]
	if r.crashed {
		r.unheard++
		w.hit(&r.toHost, ReceiverCrash)
		w.record(&r.toHost, f, lostTo[ReceiverCrash])
		w.pool.giveBack(i)
		return
	}
	answer := w.pool.lend()
	a := w.pool.frames[answer]
	c := r.qp.Counters()
	rejected, executed := rejections(r.qp), c.Get(rnic.RequestsExecuted)
	reply := r.qp.Receive(w.now, f.data(), a.room())
	w.checkAccepted(r.number, f, r.qp, rejected)
	fate := "not executed"
	if c.Get(rnic.RequestsExecuted) != executed {
		w.checkExecuted(r)
		fate = "executed"
	}
	w.record(&r.toHost, f, fate)
	w.pool.giveBack(i)
	if reply == nil {
		w.pool.giveBack(answer)
	} else {
		a.bytes = len(reply)
		w.send(&r.toSwitch, answer)
	}
	w.pollReceiver(r)
}

func (w *world) pollReceiver(r *receiver) {
	for {
		c, ok := r.qp.Poll()
		if !ok {
			return
		}
		if r.qp.State() == rnic.StateError {
			continue
		}
		w.checkReceived(r, c)
		r.received++
		w.schedule.add(event{at: w.now + r.RepostAfter, kind: repost, host: int32(r.number)})
	}
}

// expected is the memory of a receiver that has executed n packets.
func (w *world) expected(n int) []byte {
	w.image = cleared(w.image, w.s.MemoryBytes)
	for k := range n {
		if m := &w.s.Messages[w.plan.packets[k].message]; m.isWrite() {
			copy(w.plan.arrived(k, w.image, nil), w.plan.payload(k))
		}
	}
	return w.image
}

// checkMemory compares all that a receiver holds with what was written to it.
func (w *world) checkMemory(r *receiver) {
	if want := w.expected(r.executed); !bytes.Equal(want, r.memory) {
		w.fail(Memory, "%s: byte %d of its memory is not what %d packets wrote", hostName(r.number), differs(want, r.memory), r.executed)
	}
	for i := range w.s.Messages {
		place := &w.plan.messages[i]
		if place.first >= r.executed {
			break
		}
		m := &w.s.Messages[i]
		if !m.isSend() {
			continue
		}
		whole := min(m.Bytes, (r.executed-place.first)*w.s.MTUBytes)
		if !bytes.Equal(w.plan.data(i)[:whole], r.inbox[place.inbox:][:whole]) {
			w.fail(Memory, "%s: message %d was not received as it was sent", hostName(r.number), i)
		}
	}
}

// differs is where two slices of one length differ first.
func differs[T comparable](a, b []T) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return len(a)
}
