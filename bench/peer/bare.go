package peer

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"github.com/rocast/rocast/dataplane/xsk"
)

type bareSpec struct {
	IfIndexes   []int
	MultiBuffer bool
}

// startBare starts a forwarder that has only the product's rings: it has no classifier, and neither
// reads nor writes frames.
func startBare(s Setting) (*Forwarder, error) {
	spec := bareSpec{MultiBuffer: s.FrameBytes() > xsk.FrameBytes}
	for _, p := range s.Lab.Ports {
		spec.IfIndexes = append(spec.IfIndexes, p.Index)
	}
	steering, err := newSteering(s)
	if err != nil {
		return nil, err
	}
	sockets, err := steering.file()
	if err != nil {
		return nil, errors.Join(err, steering.close())
	}
	defer sockets.Close()
	p, err := launchSelf(s, "bare", spec, sockets)
	if err != nil {
		return nil, errors.Join(err, steering.close())
	}
	return p.forwarder(steering.close), nil
}

// bare runs in the forwarder's process.
type bare struct {
	quit    atomic.Bool
	ended   chan struct{}
	umem    *xsk.UMEM
	sockets []*xsk.Socket
}

const firstExtraFile = 3

func runBare(input *json.Decoder) (stop func() error, err error) {
	var spec bareSpec
	if err := input.Decode(&spec); err != nil {
		return nil, err
	}
	b := &bare{ended: make(chan struct{})}
	if err := b.open(spec, os.NewFile(firstExtraFile, "sockets")); err != nil {
		return nil, errors.Join(err, b.close())
	}
	go b.run()
	return func() error {
		b.quit.Store(true)
		<-b.ended
		return b.close()
	}, nil
}

func (b *bare) open(spec bareSpec, sockets *os.File) (err error) {
	steering, err := ebpf.NewMapFromFD(int(sockets.Fd()))
	if err != nil {
		return err
	}
	defer steering.Close()
	const answers = 64 // chunks of a receiver's port, as in forward.c
	if b.umem, err = xsk.NewUMEM(xsk.DefaultDescs + len(spec.IfIndexes)*answers); err != nil {
		return err
	}
	for i, index := range spec.IfIndexes {
		config := xsk.SocketConfig{Mode: xsk.ModeCopy, MultiBuffer: spec.MultiBuffer}
		if i > 0 {
			config.FillDescs = answers
		}
		s, err := xsk.Open(b.umem, index, 0, config)
		if err != nil {
			return fmt.Errorf("port %d: %w", i, err)
		}
		b.sockets = append(b.sockets, s)
		if err := steering.Put(uint32(i), uint32(s.FD())); err != nil {
			return fmt.Errorf("port %d: %w", i, err)
		}
	}
	return nil
}

func (b *bare) run() {
	defer close(b.ended)
	runtime.LockOSThread()
	const descsAtOnce = 64
	descs := make([]xsk.Desc, descsAtOnce)
	source, receivers := b.sockets[:1], b.sockets[1:]
	for !b.quit.Load() {
		replicate(source[0], receivers, descs)
		for _, r := range receivers {
			replicate(r, source, descs)
		}
	}
}

// replicate sends what has arrived at a port to other ports, in place: like the product, it lends
// the receive chunks to one port after the other.
func replicate(in *xsk.Socket, to []*xsk.Socket, descs []xsk.Desc) {
	const patience = time.Millisecond
	n := in.Receive(descs)
	if n == 0 {
		return
	}
	for _, out := range to {
		out.Transmit(descs[:n])
		_, _ = out.Flush(patience)
	}
	for _, d := range descs[:n] {
		in.Recycle(d.Addr)
	}
	in.TopUp()
}

func (b *bare) close() error {
	var errs []error
	for _, s := range b.sockets {
		errs = append(errs, s.Close())
	}
	if b.umem != nil {
		errs = append(errs, b.umem.Close())
	}
	return errors.Join(errs...)
}
