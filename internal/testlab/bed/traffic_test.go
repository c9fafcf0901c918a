package bed

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab"
)

// What the labs believe of a transfer: all data is written, the last WRITE is shorter, and a byte
// that differs or a frame that was refused is found.
func TestWriteAndCheck(t *testing.T) {
	testlab.NeedRoot(t)
	b, err := New(Options{Hosts: 2})
	testlab.Permitted(t, err)
	defer b.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testlab.Patience)
	defer cancel()
	source, receiver := b.Hosts[0], b.Hosts[1]
	memory, data := make([]byte, 10_500), Random(10_000, 7)
	connect := func(h, peer *Host) *endpoint.QP {
		qp, err := h.RNIC.NewQP(QP(17, 5, 1024))
		if err == nil {
			err = qp.Connect(ctx, endpoint.Peer{IP: peer.IP, QPN: 17, PSN: 5})
		}
		if err != nil {
			t.Fatal(err)
		}
		return qp
	}
	if err := receiver.RNIC.Register(rnic.Region{VA: 0x1000, RKey: 9, Access: rnic.RemoteWrite, Bytes: memory}); err != nil {
		t.Fatal(err)
	}
	connect(receiver, source)
	qp := connect(source, receiver)
	halves := 0
	began := time.Now()
	outage, err := Write(ctx, qp, rnic.Remote{VA: 0x1000 + 500, RKey: 9}, data, 4096, func() {
		halves++
		if !receiver.Has(memory[500:][:4096], data[:4096]) {
			t.Error("midway is called before half of the WRITEs are complete")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if halves != 1 {
		t.Errorf("midway was called %d times", halves)
	}
	if outage <= 0 || outage > time.Since(began) {
		t.Errorf("the longest time between two completions is %v", outage)
	}
	if err := receiver.CheckReceived(memory, append(make([]byte, 500), data...)); err != nil {
		t.Error(err)
	}
	if err := CheckResponses(qp); err != nil {
		t.Error(err)
	}
	data[9_999]++
	want := "the memory of 10.77.0.2 differs from the source's data"
	if err := receiver.CheckReceived(memory, append(make([]byte, 500), data...)); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	if bytes.Equal(Random(100, 1), Random(100, 2)) {
		t.Error("all data are equal")
	}
	data[9_999]--
	stray, err := source.RNIC.NewQP(QP(18, 5, 1024))
	if err == nil {
		err = stray.Connect(ctx, endpoint.Peer{IP: receiver.IP, QPN: 99, PSN: 5})
	}
	if err == nil {
		err = stray.PostWrite(0, data[:8], rnic.Remote{VA: 0x1000 + 500, RKey: 9})
	}
	if err != nil {
		t.Fatal(err)
	}
	testlab.Eventually(t, testlab.Patience, "the receiver refuses a frame to a queue pair that it does not have", func() bool {
		err := receiver.CheckReceived(memory, append(make([]byte, 500), data...))
		return err != nil && strings.HasPrefix(err.Error(), "10.77.0.2 refused frames: ")
	}, nil)
	// A WRITE to a key that the receiver does not have fails, and says so.
	if _, err := Write(ctx, qp, rnic.Remote{VA: 0x1000, RKey: 8}, data, len(data), nil); err == nil || !strings.Contains(err.Error(), "work request 0 of 1 ended with") {
		t.Error(err)
	}
}
