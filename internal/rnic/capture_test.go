package rnic

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/captures"
	"github.com/rocast/rocast/roce"
)

// recorded is one RC frame of a capture.
type recorded struct {
	at       time.Duration
	frame    []byte
	view     roce.View
	fromPeer bool // from host 2, the responder
}

func (r *recorded) psn() roce.PSN { return r.view.PSN(r.frame) }

// conversation is one connection of a capture: host 1 sends requests, host 2 answers.
type conversation struct {
	frames         []recorded
	client, server Peer // PSN is that of the first packet expected from each
	mtu            int
	messages       []message
	lastPSN        roce.PSN
	requests       int
	silent         bool // nothing came back, so the QPN of the client is made up
}

// message is a work request of host 1, put together from its packets.
type message struct {
	op     Operation
	remote Remote
	imm    uint32
	data   []byte
	bytes  int
}

// linkOf is the host whose link is looked at.
type linkOf int

const (
	requesterLink linkOf = iota
	responderLink
)

var serverIP = [4]byte{10, 77, 0, 2}

// lost has the indexes of the frames of a capture that were dropped on purpose between the two
// hosts. The capture was taken on the link where these frames entered, so it holds them.
var lost = map[string][]int{
	"m_loss":     {24, 47, 74, 99, 124, 148, 171, 201},
	"m_sendloss": {12, 22, 34, 47, 60, 72, 83, 92, 102, 111, 121, 131},
	"m_ackloss":  {5, 11, 17, 29, 31, 35, 39},
}

// readConversation picks the frames of the first queue pair of a capture, as the requester's link
// carried them, or the responder's link.
func readConversation(t *testing.T, name string, mtu int, link linkOf) *conversation {
	t.Helper()
	frames, err := captures.Frames(name)
	if err != nil {
		t.Fatal(err)
	}
	c := &conversation{mtu: mtu}
	for i, f := range frames {
		r := recorded{at: f.At.Sub(frames[0].At), frame: f.Data}
		err := r.view.Decode(f.Data, len(f.Data))
		if errors.Is(err, roce.ErrNotUDP) || errors.Is(err, roce.ErrNotIP) || errors.Is(err, roce.ErrNotRoCE) {
			continue
		}
		if err != nil {
			t.Fatalf("%s at %v: %v", name, r.at, err)
		}
		r.fromPeer = r.view.SrcIP(r.frame).As4() == serverIP
		if slices.Contains(lost[name], i) && r.fromPeer == (link == requesterLink) {
			continue // the frame entered on the other link
		}
		// Requests of host 2 (write_lat) and their answers are another conversation.
		if r.view.Opcode < rcOpcodes && r.view.Opcode.IsResponse() == r.fromPeer {
			c.add(r)
		}
	}
	if c.requests == 0 {
		t.Fatalf("%s holds no request", name)
	}
	if c.client.QPN == 0 {
		c.silent, c.client.QPN = true, 0x77
	}
	c.readMessages(t)
	return c
}

func (c *conversation) add(r recorded) {
	self, other := &c.client, &c.server
	if r.fromPeer {
		self, other = other, self
	}
	if other.QPN != 0 && other.QPN != r.view.DestQPN(r.frame) {
		return
	}
	other.QPN, other.IP, other.MAC = r.view.DestQPN(r.frame), r.view.DstIP(r.frame), roce.MAC(r.frame)
	self.IP, self.MAC = r.view.SrcIP(r.frame), roce.MAC(r.frame[6:])
	if !r.fromPeer {
		if c.requests == 0 {
			self.PSN, c.lastPSN = r.psn(), r.psn()
		}
		if r.psn().After(c.lastPSN) {
			c.lastPSN = r.psn()
		}
		c.requests++
	}
	c.frames = append(c.frames, r)
}

// readMessages puts the messages together from the first copy of each PSN.
func (c *conversation) readMessages(t *testing.T) {
	t.Helper()
	byPSN := map[roce.PSN]*recorded{}
	for i := range c.frames {
		if r := &c.frames[i]; !r.fromPeer && byPSN[r.psn()] == nil {
			byPSN[r.psn()] = r
		}
	}
	for psn := c.client.PSN; !psn.After(c.lastPSN); {
		first := byPSN[psn]
		if first == nil {
			t.Fatalf("PSN %#x was not captured", psn)
		}
		m := message{op: operationOf(first.view.Opcode)}
		if first.view.Opcode.Headers().Has(roce.HasRETH) {
			reth := first.view.RETH(first.frame)
			m.remote, m.bytes = Remote{VA: reth.VA, RKey: reth.RKey}, int(reth.DMABytes)
		}
		if m.op == Read {
			psn = psn.Add(int32(max((m.bytes+c.mtu-1)/c.mtu, 1)))
		} else {
			psn = c.gather(&m, byPSN, psn)
		}
		c.messages = append(c.messages, m)
	}
}

// gather collects the payload of one message and returns the PSN behind it. Packets that are
// missing at the end of the capture are zeros.
func (c *conversation) gather(m *message, byPSN map[roce.PSN]*recorded, psn roce.PSN) roce.PSN {
	for {
		r := byPSN[psn]
		if r == nil {
			m.data = append(m.data, make([]byte, m.bytes-len(m.data))...)
			return c.lastPSN.Next()
		}
		psn = psn.Next()
		m.data = append(m.data, r.frame[r.view.Payload:][:r.view.PayloadBytes]...)
		if r.view.Opcode.Headers().Has(roce.HasImmDt) {
			m.imm = immediate(&r.view, r.frame)
			m.op = map[Operation]Operation{Write: WriteImm, Send: SendImm}[m.op]
		}
		if r.view.Opcode.EndsMessage() {
			m.bytes = len(m.data)
			return psn
		}
	}
}

// region is memory that holds everything the messages write, and its contents when all are done.
func (c *conversation) region() (r Region, want []byte) {
	low, high := ^uint64(0), uint64(0)
	for _, m := range c.messages {
		low, high = min(low, m.remote.VA), max(high, m.remote.VA+uint64(m.bytes))
		r.RKey = m.remote.RKey
	}
	want = make([]byte, high-low)
	for _, m := range c.messages {
		if m.op == Write || m.op == WriteImm {
			copy(want[m.remote.VA-low:], m.data)
		}
	}
	r.VA, r.Access, r.Bytes = low, RemoteWrite, make([]byte, high-low)
	return r, want
}

// ipID is the IPv4 identification, the one field of a frame that rxe takes from the kernel.
func (r *recorded) ipID() uint16 { return binary.BigEndian.Uint16(r.frame[r.view.L3+4:]) }

func operationOf(op roce.Opcode) Operation {
	switch {
	case op == roce.OpReadRequest:
		return Read
	case isSend(op):
		return Send
	}
	return Write
}

func (m *message) post(q *QP, wrID uint64) error {
	switch m.op {
	case Write:
		return q.PostWrite(wrID, m.data, m.remote)
	case WriteImm:
		return q.PostWriteImm(wrID, m.data, m.remote, m.imm)
	case Send:
		return q.PostSend(wrID, m.data)
	case SendImm:
		return q.PostSendImm(wrID, m.data, m.imm)
	}
	return q.PostRead(wrID, m.bytes, m.remote)
}

// newQP makes the queue pair of one side of the conversation.
func (c *conversation) newQP(t *testing.T, self, other Peer, mem *Memory, change func(*Config)) *QP {
	t.Helper()
	cfg := Defaults()
	cfg.MAC, cfg.IP, cfg.QPN, cfg.SendPSN, cfg.MTUBytes = self.MAC, self.IP, self.QPN, self.PSN, c.mtu
	if change != nil {
		change(&cfg)
	}
	q, err := NewQP(cfg, mem)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Connect(other); err != nil {
		t.Fatal(err)
	}
	return q
}
