package rnic

import (
	"net/netip"
	"testing"

	"github.com/rocast/rocast/roce"
)

func TestConfigErrors(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no IP":     func(c *Config) { c.IP = netip.Addr{} },
		"QPN":       func(c *Config) { c.QPN = 1 << 24 },
		"PSN":       func(c *Config) { c.SendPSN = 1 << 24 },
		"MTU 1500":  func(c *Config) { c.MTUBytes = 1500 },
		"MTU 128":   func(c *Config) { c.MTUBytes = 128 },
		"MTU 8192":  func(c *Config) { c.MTUBytes = 8192 },
		"timeout":   func(c *Config) { c.Timeout = 32 },
		"retry":     func(c *Config) { c.RetryCount = 8 },
		"RNR retry": func(c *Config) { c.RNRRetry = 8 },
		"no queue":  func(c *Config) { c.SendDepth = 0 },
		"rate 0":    func(c *Config) { c.RateControl = RateControl{Stages: 1} },
		"min rate":  func(c *Config) { c.RateControl = DCQCN(1_000_000) },
		"line rate": func(c *Config) { c.RateControl = DCQCN(1 << 43) },
		"gain":      func(c *Config) { c.RateControl = DCQCN(1e9); c.RateControl.Gain = 21 },
	} {
		c := Defaults()
		c.IP = storySelf.IP
		change(&c)
		if _, err := NewQP(c, &Memory{}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestConnectOnce(t *testing.T) {
	q, _ := storyQP(t)
	if q.Connect(storyPeer) == nil {
		t.Error("connected twice")
	}
}

// The slot of a work request is free again when its completion has been polled, and not before.
func TestQueueFull(t *testing.T) {
	a, b := pairIPv4(t, func(c *Config) { c.SendDepth, c.RecvDepth = 3, 2 })
	for i := range uint64(3) {
		if err := a.qp.PostWrite(i, nil, b.remote()); err != nil {
			t.Fatal(err)
		}
	}
	exchange(a, b)
	if err := a.qp.PostWrite(3, nil, b.remote()); err != ErrQueueFull {
		t.Errorf("completed, not polled: %v", err)
	}
	if c, ok := a.qp.Poll(); !ok || c.WRID != 0 {
		t.Fatal(c, ok)
	}
	if err := a.qp.PostWrite(3, nil, b.remote()); err != nil {
		t.Error(err)
	}
	for i := range uint64(2) {
		if err := b.qp.PostRecv(i, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.qp.PostRecv(2, nil); err != ErrQueueFull {
		t.Errorf("receives: %v", err)
	}
}

func TestMemory(t *testing.T) {
	var m Memory
	region := Region{VA: 0x1000, RKey: 1, Access: RemoteWrite, Bytes: make([]byte, 0x1000)}
	if err := m.Register(region); err != nil {
		t.Fatal(err)
	}
	if m.Register(region) == nil {
		t.Error("one key twice")
	}
	if m.Register(Region{VA: ^uint64(0) - 1, RKey: 2, Bytes: make([]byte, 4)}) == nil {
		t.Error("a region that wraps")
	}
	for _, c := range []struct {
		va, bytes uint64
		want      bool
	}{
		{0x1000, 0x1000, true}, {0x1FFF, 1, true}, {0xFFF, 1, false}, {0x1FFF, 2, false}, {0x2000, 1, false},
		{0x1001, ^uint64(0), false},
	} {
		if b, _, ok := m.writable(c.va, 1, c.bytes); ok != c.want || ok && uint64(len(b)) != c.bytes {
			t.Errorf("%#x+%#x: %v, %d bytes", c.va, c.bytes, ok, len(b))
		}
	}
	m.Deregister(1)
	if _, why, ok := m.writable(0x1000, 1, 1); ok || why != RequestsBadRKey {
		t.Error("a region is still there")
	}
}

// A region that is deregistered in the middle of a message ends the message.
func TestDeregisterInsideMessage(t *testing.T) {
	a, b := pairIPv4(t, nil)
	if err := a.qp.PostWrite(1, make([]byte, 3000), b.remote()); err != nil {
		t.Fatal(err)
	}
	b.qp.Receive(0, a.qp.Transmit(0, nil), nil)
	b.qp.mem.Deregister(nodeRKey)
	exchange(a, b)
	if c, ok := a.qp.Poll(); !ok || c.Status != RemoteAccess {
		t.Error(c, ok)
	}
}

func TestCountersByName(t *testing.T) {
	a, b := pairIPv4(t, nil)
	if err := a.qp.PostWrite(1, make([]byte, 3000), b.remote()); err != nil {
		t.Fatal(err)
	}
	exchange(a, b)
	sum := *a.qp.Counters()
	sum.Add(b.qp.Counters())
	named := sum.ByName()
	for name, want := range map[string]uint64{
		"out_WRITE_FIRST": 1, "in_WRITE_MIDDLE": 1, "in_WRITE_LAST": 1, "acks_sent": 1, "acks_received": 1, "in_ACK": 1,
		"payload_bytes_received": 3000, "messages_sent": 1, "messages_received": 1, "requests_executed": 3,
	} {
		if named[name] != want {
			t.Errorf("%s is %d, want %d", name, named[name], want)
		}
	}
	for c := range NumCounters {
		if c.String() == "" {
			t.Errorf("counter %d has no name", c)
		}
	}
}

// The numbers are those of two captures: write_small and m_rnr.
func TestUDPSourcePort(t *testing.T) {
	for _, c := range []struct {
		client, server roce.QPN
		want           uint16
	}{{0x42, 0xA2, 59844}, {0x39, 0x84, 56676}} {
		if got := udpSrcPort(c.client, c.server); got != c.want {
			t.Errorf("%#x and %#x: %d, want %d", c.client, c.server, got, c.want)
		}
	}
}
