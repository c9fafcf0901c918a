package afxdp

import (
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
