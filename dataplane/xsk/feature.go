package xsk

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Feature is a part of AF_XDP that not every kernel has. A probe tries it out once, on devices of a
// network namespace made for the purpose. Zero-copy is no Feature: it depends on the device and is
// known when a socket is bound (Obtained.Mode).
type Feature struct {
	Name     string
	Kernel   string // the first version that has it
	Fallback string // what happens without it

	probe  func() error
	once   sync.Once
	answer error
}

// The features that sockets use.
var (
	NeedWakeup = &Feature{Name: "need-wakeup", Kernel: "5.4",
		Fallback: "none: sockets do not open", probe: probeNeedWakeup}
	SharedUMEM = &Feature{Name: "shared-umem", Kernel: "5.10",
		Fallback: "none: a second port or queue does not open", probe: probeSharedUMEM}
	MultiBuffer = &Feature{Name: "multi-buffer", Kernel: "6.6",
		Fallback: "frames longer than 3840 bytes (path MTU 4096) cannot be carried", probe: probeMultiBuffer}
	KickBudget = &Feature{Name: "kick-budget", Kernel: "6.17",
		Fallback: "one syscall sends 32 descriptors instead of 256", probe: probeKickBudget}
)

// Features lists them, oldest first.
func Features() []*Feature { return []*Feature{NeedWakeup, SharedUMEM, MultiBuffer, KickBudget} }

// Supported returns nil, or the reason why the feature cannot be used. The reason wraps
// errors.ErrUnsupported if the kernel lacks the feature, and does not if the probe could not run.
func (f *Feature) Supported() error {
	f.once.Do(func() {
		err := inNewNamespace(f.probe)
		if err != nil {
			f.answer = fmt.Errorf("%s (kernel >= %s): %w", f.Name, f.Kernel, err)
		}
	})
	return f.answer
}

// loopback is the index of the one interface every new namespace has.
const loopback = 1

// unsupported marks the errno with which a kernel answers that it does not know the feature.
func unsupported(err, says error) error {
	if errors.Is(err, says) {
		return fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	return err
}

// Kernels without need-wakeup fill in less of struct xdp_mmap_offsets: none of the flags fields.
func probeNeedWakeup() error {
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return unsupported(err, unix.EAFNOSUPPORT)
	}
	defer unix.Close(fd)
	var offsets unix.XDPMmapOffsets
	length, err := getsockopt(fd, unix.XDP_MMAP_OFFSETS, &offsets)
	if err == nil && length < 4*4*8 {
		err = errors.ErrUnsupported
	}
	return err
}

func probeSharedUMEM() error {
	tap, ifindex, err := openTap()
	if err != nil {
		return err
	}
	defer tap.Close()
	return withProbeSocket(loopback, SocketConfig{Mode: ModeCopy}, func(s *Socket) error {
		other, err := Open(s.umem, ifindex, 0, probeRings(SocketConfig{}))
		if err != nil {
			return unsupported(err, unix.EINVAL)
		}
		return other.Close()
	})
}

// openTap makes an interface that exists until the returned file is closed.
func openTap() (tap *os.File, ifindex int, err error) {
	if tap, err = os.OpenFile("/dev/net/tun", os.O_RDWR, 0); err != nil {
		return nil, 0, err
	}
	request, err := unix.NewIfreq("rcprobe")
	if err == nil {
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(int(tap.Fd()), unix.TUNSETIFF, request)
	}
	if err == nil {
		ifindex, err = interfaceIndex(request.Name())
	}
	if err != nil {
		return nil, 0, errors.Join(err, tap.Close())
	}
	return tap, ifindex, nil
}

func interfaceIndex(name string) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	err = unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request)
	return int(request.Uint32()), err
}

// A kernel without multi-buffer refuses the flag and accepts the same bind without it.
func probeMultiBuffer() error {
	nothing := func(*Socket) error { return nil }
	if err := withProbeSocket(loopback, SocketConfig{Mode: ModeCopy}, nothing); err != nil {
		return err
	}
	umem, err := NewUMEM(1)
	if err != nil {
		return err
	}
	defer umem.Close()
	s, err := newSocket(umem, loopback, 0, probeRings(SocketConfig{}))
	if err != nil {
		return err
	}
	defer s.discard()
	return unsupported(bindPatiently(s.fd, &unix.SockaddrXDP{
		Flags: bindFlags(SocketConfig{Mode: ModeCopy, MultiBuffer: true}), Ifindex: loopback,
	}, bindPatience), unix.EINVAL)
}

func probeKickBudget() error {
	return withProbeSocket(loopback, SocketConfig{Mode: ModeCopy}, func(s *Socket) error {
		budget := uint32(defaultKickDescs)
		return unsupported(setsockopt(s.fd, unix.XDP_MAX_TX_SKB_BUDGET, &budget), unix.ENOPROTOOPT)
	})
}

func probeRings(config SocketConfig) SocketConfig {
	config.RxDescs, config.TxDescs, config.FillDescs, config.CompletionDescs = 1, defaultKickDescs, 1, 1
	return config
}

func withProbeSocket(ifindex int, config SocketConfig, use func(*Socket) error) error {
	umem, err := NewUMEM(2)
	if err != nil {
		return err
	}
	s, err := Open(umem, ifindex, 0, probeRings(config))
	if err != nil {
		return errors.Join(err, umem.Close())
	}
	err = use(s)
	return errors.Join(err, s.Close(), umem.Close())
}

// inNewNamespace runs fn on a thread in a network namespace of its own, so that probing disturbs no
// device in use. A thread that cannot return to its own namespace ends with its goroutine.
func inNewNamespace(fn func() error) (err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		var own *os.File
		if own, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return
		}
		defer own.Close()
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			err = fn()
		}
		if restoreErr := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); restoreErr != nil {
			err = errors.Join(err, restoreErr)
			return
		}
		runtime.UnlockOSThread()
	}()
	<-done
	return err
}
