package cm

import (
	"encoding/hex"
	"net/netip"
	"slices"
	"testing"
	"time"

	wire "github.com/rocast/rocast/roce/cm"
)

// The bytes of the two layouts of private data, as docs/wire.md has them.
func TestPrivateDataOnTheWire(t *testing.T) {
	c := testConfig("b", "c")
	c.Choose = true
	m := newMachine(c, newWays(), inBand, testSeed, usual, time.Time{})
	req := testREQ(hostIPs["a"], 1, 2, 3, 4)
	copy(req.PrivateData[wire.IPHeaderBytes:], make([]byte, 56))
	list, err := hex.DecodeString("0a4d0003" + "0a4d0002")
	if err != nil {
		t.Fatal(err)
	}
	copy(req.PrivateData[36:], list)
	if got, want := m.config.receivers(req), []netip.Addr{netip.MustParseAddr("10.77.0.3"), netip.MustParseAddr("10.77.0.2")}; !slices.Equal(got, want) {
		t.Errorf("receivers %v, want %v", got, want)
	}
	c.Receivers = nil
	for i := range 14 { // as many as there is room for
		c.Receivers = append(c.Receivers, netip.AddrFrom4([4]byte{10, 78, 0, byte(i)}))
		copy(req.PrivateData[36+4*i:], []byte{10, 78, 0, byte(i)})
	}
	if got := c.receivers(req); !slices.Equal(got, c.Receivers) {
		t.Errorf("receivers %v, want all 14", got)
	}
	region, err := hex.DecodeString("00007f0000001000" + "00001234" + "04000000")
	if err != nil {
		t.Fatal(err)
	}
	if r := readRegion(region); r.VA != 0x7f0000001000 || r.RKey != 0x1234 || r.Length != 64<<20 {
		t.Errorf("%+v", r)
	}
}

// FuzzReceivers: whatever a REQ names, the source gets no other receivers than those of the
// service, each once, and at most 14.
func FuzzReceivers(f *testing.F) {
	f.Add([]byte{10, 77, 0, 2, 10, 77, 0, 3})
	f.Add([]byte{10, 77, 0, 2, 0, 0, 0, 0, 10, 77, 0, 3})
	f.Add(slices.Repeat([]byte{10, 77, 0, 2}, 14))
	c := testConfig("b", "c", "d")
	c.Choose = true
	f.Fuzz(func(t *testing.T, list []byte) {
		m := newMachine(c, newWays(), inBand, testSeed, usual, time.Time{})
		req := testREQ(hostIPs["a"], 1, 2, 3, 4)
		clear(req.PrivateData[wire.IPHeaderBytes:])
		copy(req.PrivateData[wire.IPHeaderBytes:], list)
		got := m.config.receivers(req)
		for i, ip := range got {
			if !slices.Contains(c.Receivers, ip) || slices.Contains(got[:i], ip) {
				t.Errorf("%v", got)
			}
		}
		if got != nil && (len(got) == 0 || len(got) > 14) {
			t.Errorf("%d receivers", len(got))
		}
	})
}

// Memory without regions can get some, and no memory cannot.
func TestMemoryThatGetsItsRegionsLater(t *testing.T) {
	for _, memory := range []Memory{NoMemory, ByRegions} {
		c := testConfig("b")
		c.Memory = memory
		w := newWorld(t, c)
		w.hosts[0].connect()
		w.run(time.Second)
		if g := w.file; g == nil || len(g.Memory) != 0 || (g.Memory != nil) != (memory == ByRegions) || g.Receivers[0].Regions != nil {
			t.Errorf("%v: %+v", memory, g)
		}
	}
}
