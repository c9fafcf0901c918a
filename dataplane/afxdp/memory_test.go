package afxdp

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rocast/rocast/dataplane"
)

func TestPacketMemoryIsDividedOverTheQueues(t *testing.T) {
	for _, c := range []struct {
		queues  string // of the ports at the start; 0: it is missing
		workers int
		want    string // what each queue gets, or the error
	}{
		{"1 1 1", 1, "2048 2048 2048"},
		{"8 8 8 8", 1, "2048 2048 2048 2048"},
		{"63 63", 1, "512 512"},
		{"63 63", 2, "1024 1024"},
		{"63 63 63 63", 1, "256 256 256 256"},
		{"4 0", 1, "2048 2048"},
		{"1024", 1, "the ports have 1024 queues for each worker, and there is packet memory for 256; reduce the queues with `ethtool -L PORT combined N`, or name fewer ports"},
	} {
		var interfaces []*iface
		for _, word := range strings.Fields(c.queues) {
			f := &iface{}
			fmt.Sscan(word, &f.info.Queues)
			interfaces = append(interfaces, f)
		}
		var got []string
		err := setRooms(interfaces, c.workers)
		if err != nil {
			got = []string{err.Error()}
		}
		sum := 0
		for _, f := range interfaces {
			sum += f.room
			if err != nil {
				continue
			}
			if f.info.Queues == 0 {
				f.info.Queues = interfaces[0].info.Queues
			}
			share, err := f.fillChunks(f.info.Queues, c.workers)
			if err != nil {
				t.Errorf("%s: %v", c.queues, err)
			}
			got = append(got, fmt.Sprint(share))
		}
		if text := strings.Join(got, " "); text != c.want || sum > receiveChunks {
			t.Errorf("%s: %d chunks, %s; want %s", c.queues, sum, text, c.want)
		}
	}
}

// The workers share the memory for repair. Less than a chunk's worth of a share is lost.
func TestRepairMemoryIsSharedByTheWorkers(t *testing.T) {
	refused := func(kib, workers, least, most int) string {
		return fmt.Sprintf("repairMemory is %d KiB, and %d workers can share from %dMiB to %dMiB; write a size between these, or 0",
			kib, workers, least, most)
	}
	for _, c := range []struct {
		bytes   uint64
		workers int
		want    string
	}{
		{0, 3, "0"},
		{64 << 20, 1, "16384"},
		{64 << 20, 3, "5461"},
		{1 << 20, 1, "256"},
		{1<<20 - 1, 1, refused(1023, 1, 1, 3792)},
		{3 << 20, 4, refused(3072, 4, 4, 15168)},
		{4 << 20, 4, "256"},
		{3792 << 20, 1, "970752"},
		{3793 << 20, 1, refused(3793<<10, 1, 1, 3792)},
		{1 << 62, 1, refused(1<<52, 1, 1, 3792)},
	} {
		chunks, err := repairShare(c.bytes, c.workers)
		got := fmt.Sprint(chunks)
		if err != nil {
			got = err.Error()
		}
		if got != c.want || err != nil && !errors.Is(err, ErrConfig) {
			t.Errorf("%d bytes, %d workers:\ngot  %s\nwant %s", c.bytes, c.workers, got, c.want)
		}
	}
}

// The kernel's memory has room for as many groups as docs/evaluation.md#memory says.
func TestHowManyGroupsTheKernelRetainsFor(t *testing.T) {
	for packets, groups := range map[int]int{1: 480, 64: 480, 65: 240, 128: 240, 1024: 30} {
		k, n := newKernelMemory(kernelRetains(64<<20)), 0
		for part := k.take(0, packets); part.entries > 0; part = k.take(n, packets) {
			n++
		}
		if n != groups {
			t.Errorf("%d groups have room for %d packets, want %d", n, packets, groups)
		}
	}
	for bytes, want := range map[uint64]int{0: 0, 1 << 20: 448, 64 << 20: 30720, 1 << 29: 245760, 1 << 30: maxKernelRetained, 1 << 40: maxKernelRetained} {
		if got := kernelRetains(bytes); got != want {
			t.Errorf("%d bytes have room for %d packets, want %d", bytes, got, want)
		}
	}
}

// An interface has no more packet memory later than its port got at the start.
func TestMoreQueuesThanAtTheStartGetLessEach(t *testing.T) {
	f := &iface{info: dataplane.PortInfo{Name: "p1"}, room: 2 * queueDescs}
	for queues, want := range map[int]uint32{1: 2048, 2: 2048, 3: 1024, 4: 1024, 16: 256} {
		if got, err := f.fillChunks(queues, 1); got != want || err != nil {
			t.Errorf("%d queues get %d (%v), want %d", queues, got, err, want)
		}
	}
	want := "it has 17 queues, and when rocastd started it got packet memory for 16; restart rocastd, or reduce the queues with `ethtool -L p1 combined 16`"
	if _, err := f.fillChunks(17, 1); err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
}

func TestBoundsBeyondTheRingAreRefused(t *testing.T) {
	ports := []string{"eth1", "eth2"}
	const most = 8 << 20
	fits := dataplane.Egress{KminBytes: most, KmaxBytes: most, LimitBytes: most}
	for want, e := range map[string]dataplane.Egress{
		"": fits,
		"egress of port eth2: kmin is 8193 KiB, and a device never has more than 8MiB; write at most 8MiB":  {KminBytes: most + 1024},
		"egress of port eth2: kmax is 8193 KiB, and a device never has more than 8MiB; write at most 8MiB":  {KmaxBytes: most + 1024},
		"egress of port eth2: limit is 8193 KiB, and a device never has more than 8MiB; write at most 8MiB": {LimitBytes: most + 1024},
	} {
		err := checkEgress(ports, []dataplane.Egress{fits, e})
		if (err == nil) != (want == "") || err != nil && (err.Error() != want || !errors.Is(err, ErrConfig)) {
			t.Errorf("%+v: %v", e, err)
		}
	}
	_, err := Open(Config{Ports: []string{"none"}, Egress: []dataplane.Egress{{LimitBytes: most + 1024}}})
	if !errors.Is(err, ErrConfig) {
		t.Errorf("opened: %v", err)
	}
	if most > dataplane.LimitMost {
		t.Error("a bound that fits overflows dataplane.Egress.Marks")
	}
}
