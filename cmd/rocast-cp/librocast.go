//go:build librocast && cgo

package main

// #cgo LDFLAGS: -lrocast -libverbs
// #include "../../host/rocast.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/host/copying"
	"github.com/rocast/rocast/host/copying/program"
)

// transport is librocast.
type transport struct{}

const (
	buffers = 4
	// policy lets the others go on when a receiver dies. Single connections would wait for it, so
	// librocast does without them: the source of the package copying has its own.
	policy = "evict=true,on-fatal=evict,silent-after=10s"
	// giveUp is longer than silent-after: until then the box may take a receiver out.
	giveUp = 30 * time.Second
	// slice is how long the library may wait before the end of a context is looked at.
	slice = 100 * time.Millisecond
	// pollEvery is how often the library is called while the program does something else.
	pollEvery = 500 * time.Millisecond
)

// member is a membership. Everything of the library happens in one thread, because its sentences
// belong to a thread.
type member struct {
	calls   chan func()
	ended   chan struct{}
	once    sync.Once
	arrived []C.struct_rocast_completion // taken from the library, and not by the program

	host   *C.struct_rocast
	group  *C.struct_rocast_group
	memory *C.struct_rocast_memory
	bytes  []byte // of all buffers
	local  netip.Addr

	buffers [][]byte
}

// interruptibly joins, and leaves if ctx ends meanwhile. rocast_join hears nothing but its box.
func interruptibly(ctx context.Context, m program.Membership, role C.enum_rocast_role) (*member, error) {
	return program.Interruptible(ctx, func() (*member, error) { return join(m, role) }, func(ctx context.Context) error {
		box, err := netip.ParseAddrPort(m.Box)
		if err != nil {
			return err
		}
		local, err := localAddress(m.Box)
		if err != nil {
			return err
		}
		return client.NewHost(box, local).Leave(ctx, m.Group)
	})
}

func join(m program.Membership, role C.enum_rocast_role) (*member, error) {
	x := &member{calls: make(chan func()), ended: make(chan struct{})}
	go x.loop()
	if err := x.do(func() error { return x.open(m, role) }); err != nil {
		_ = x.Close()
		return nil, err
	}
	return x, nil
}

// loop is the thread of the library.
func (x *member) loop() {
	runtime.LockOSThread()
	every := time.NewTicker(pollEvery)
	defer every.Stop()
	for {
		select {
		case call := <-x.calls:
			call()
		case <-every.C:
			if x.group != nil {
				_ = x.take(0) // whoever waits next hears of a failure
			}
		case <-x.ended:
			return
		}
	}
}

// do calls f in the thread of the library.
func (x *member) do(f func() error) error {
	failure := make(chan error, 1)
	select {
	case x.calls <- func() { failure <- f() }:
		return <-failure
	case <-x.ended:
		return errors.New("the group was left")
	}
}

// sentence is what the library says about a failure.
func sentence(status C.int) error {
	if status >= 0 {
		return nil
	}
	return errors.New(C.GoString(C.rocast_message()))
}

func (x *member) open(m program.Membership, role C.enum_rocast_role) (err error) {
	if x.local, err = localAddress(m.Box); err != nil {
		return err
	}
	var pins runtime.Pinner // the library needs the texts during its calls
	defer pins.Unpin()
	text := func(s string) *C.char {
		b := append([]byte(s), 0)
		pins.Pin(&b[0])
		return (*C.char)(unsafe.Pointer(&b[0]))
	}
	box, name, rules := text(m.Box), text(m.Group), text(policy)
	settings := C.struct_rocast_settings{box: box}
	if err := sentence(C.rocast_open(&settings, &x.host)); err != nil {
		return err
	}
	if os.Getenv("ROCAST_POLICY") == "" {
		if err := sentence(C.rocast_set_policy(x.host, rules)); err != nil {
			return err
		}
	}
	// Memory that Go neither moves nor frees.
	if x.bytes, err = unix.Mmap(-1, 0, buffers*copying.MessageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE); err != nil {
		return fmt.Errorf("memory for messages: %w", err)
	}
	x.buffers = slices.Collect(slices.Chunk(x.bytes, copying.MessageBytes))
	if err := sentence(C.rocast_register(x.host, unsafe.Pointer(&x.bytes[0]), C.size_t(len(x.bytes)), &x.memory)); err != nil {
		return err
	}
	wanted := C.struct_rocast_membership{
		name: name, role: uint32(role), members: C.uint(m.Members), patience_ms: C.uint(m.Wait / time.Millisecond),
		give_up_ms: C.uint(giveUp / time.Millisecond), without_fallback: 1,
	}
	return sentence(C.rocast_join(x.host, &wanted, &x.group))
}

// localAddress is the address of this host by which it reaches the box, as librocast finds it.
func localAddress(box string) (netip.Addr, error) {
	if own := os.Getenv("ROCAST_ADDRESS"); own != "" {
		return netip.ParseAddr(own)
	}
	conn, err := net.Dial("udp", box)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("the box %s: %w", box, err)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}

func (x *member) Local() netip.Addr { return x.local }

// Has reports whether a host is another member of the group.
func (x *member) Has(ip netip.Addr) (is bool) {
	text := append([]byte(ip.String()), 0)
	_ = x.do(func() error { // after its end the group has no members
		is = x.group != nil && C.rocast_has_member(x.group, (*C.char)(unsafe.Pointer(&text[0]))) == 1
		return nil
	})
	return is
}

// Close leaves the group.
func (x *member) Close() (err error) {
	x.once.Do(func() {
		_ = x.do(func() error {
			if x.group != nil {
				_ = C.rocast_leave(x.group) // it may have ended, and is freed
				x.group = nil
			}
			C.rocast_close(x.host)
			return nil
		})
		close(x.ended)
		if x.bytes != nil {
			err = unix.Munmap(x.bytes)
		}
	})
	return err
}

// take takes completions from the library, and waits for them no longer than most.
func (x *member) take(most time.Duration) error {
	var list [buffers]C.struct_rocast_completion
	n := C.rocast_wait(x.group, &list[0], buffers, C.uint(most/time.Millisecond))
	if n > 0 {
		x.arrived = append(x.arrived, list[:n]...)
	}
	return sentence(n)
}

// Completion returns the next completion.
func (x *member) Completion(ctx context.Context) (id uint64, bytes int, err error) {
	for {
		var c C.struct_rocast_completion
		found := false
		err := x.do(func() (err error) {
			if len(x.arrived) == 0 {
				err = x.take(slice)
			}
			if len(x.arrived) > 0 {
				c, found, err = x.arrived[0], true, nil
				x.arrived = x.arrived[1:]
			}
			return err
		})
		switch {
		case found && c.kind == C.ROCAST_FAILED:
			return 0, 0, errors.New("the group has ended, or does not reach all of its members")
		case found:
			return uint64(c.id), int(c.bytes), nil
		case err != nil:
			return 0, 0, err
		case ctx.Err() != nil:
			return 0, 0, context.Cause(ctx)
		}
	}
}

// PostSend posts a message.
func (x *member) PostSend(id uint64, message []byte) error {
	return x.post(message, func(at unsafe.Pointer, n C.size_t) C.int {
		return C.rocast_send(x.group, x.memory, at, n, C.uint64_t(id))
	})
}

// PostRecv posts a receive.
func (x *member) PostRecv(id uint64, buffer []byte) error {
	return x.post(buffer, func(at unsafe.Pointer, n C.size_t) C.int {
		return C.rocast_receive(x.group, x.memory, at, n, C.uint64_t(id))
	})
}

func (x *member) post(b []byte, call func(at unsafe.Pointer, n C.size_t) C.int) error {
	return x.do(func() error { return sentence(call(unsafe.Pointer(&b[0]), C.size_t(len(b)))) })
}

// sending is a membership of a source.
type sending struct {
	*member
	copying.Sender
}

func (transport) Send(ctx context.Context, m program.Membership) (program.Sending, error) {
	x, err := interruptibly(ctx, m, C.ROCAST_SOURCE)
	if err != nil {
		return nil, err
	}
	return sending{x, copying.NewSender(x, x.buffers)}, nil
}

// receiving is a membership of a receiver.
type receiving struct {
	*member
	copying.Inbox
}

func (transport) Receive(ctx context.Context, m program.Membership) (program.Receiving, error) {
	x, err := interruptibly(ctx, m, C.ROCAST_RECEIVER)
	if err != nil {
		return nil, err
	}
	for i, b := range x.buffers {
		if err := x.PostRecv(uint64(i), b); err != nil {
			return nil, errors.Join(err, x.Close())
		}
	}
	return receiving{x, copying.NewInbox(x, x.buffers)}, nil
}
