package netns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Dir is where iproute2 keeps named namespaces.
const Dir = "/run/netns"

const threadNS = "/proc/thread-self/ns/net"

// NS is one named network namespace. Its methods may be used from any goroutine.
type NS struct {
	name  string
	file  *os.File
	links *netlink.Handle
}

var (
	created     atomic.Uint32
	removeStale sync.Once
)

// New creates a namespace that is removed when the test ends. It skips the test if that is not
// permitted.
func New(t testing.TB) *NS {
	t.Helper()
	n, err := Create()
	if errors.Is(err, os.ErrPermission) {
		t.Skipf("needs CAP_SYS_ADMIN and CAP_NET_ADMIN: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// Create makes a namespace in which the loopback is up and IPv6 is off for every link that is made
// later, so that router solicitations and the like are not among counted frames. A caller that
// needs IPv6 first sets net.ipv6.conf.default.disable_ipv6 to 0.
func Create() (*NS, error) {
	removeStale.Do(func() {
		_ = RemoveStale()
		if testing.Testing() {
			cleanUpAtSignal()
		}
	})
	n := &NS{name: fmt.Sprintf("%s%s%d-%d", prefix, program(), os.Getpid(), created.Add(1))}
	living.Lock()
	err := n.create()
	if err == nil {
		living.all[n] = struct{}{}
	}
	living.Unlock()
	if err != nil {
		return nil, fmt.Errorf("create network namespace %s: %w", n.name, err)
	}
	if err := n.setUp(); err != nil {
		return nil, errors.Join(fmt.Errorf("set up network namespace %s: %w", n.name, err), n.Close())
	}
	return n, nil
}

// create makes a namespace with a name in the way of "ip netns add": by a bind mount of the
// namespace of a thread.
func (n *NS) create() error {
	unlock, err := lockDir()
	if err != nil {
		return err
	}
	defer unlock()
	mountPoint, err := os.OpenFile(n.path(), os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	mountPoint.Close()
	err = onOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := unix.Mount(threadNS, n.path(), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind mount: %w", err)
		}
		return nil
	})
	if err == nil {
		n.file, err = os.Open(n.path())
	}
	if err != nil {
		return errors.Join(err, remove(n.path()))
	}
	return nil
}

func (n *NS) setUp() (err error) {
	if n.links, err = netlink.NewHandleAt(vnetns.NsHandle(n.file.Fd()), unix.NETLINK_ROUTE); err != nil {
		return err
	}
	if err := n.Sysctl("net.ipv6.conf.default.disable_ipv6", "1"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	lo, err := n.links.LinkByName("lo")
	if err != nil {
		return err
	}
	return n.links.LinkSetUp(lo)
}

// Close removes the name. The kernel removes the namespace and its links after the last socket and
// process inside are gone.
func (n *NS) Close() error {
	if n.links != nil {
		n.links.Close()
	}
	living.Lock()
	defer living.Unlock()
	delete(living.all, n)
	n.file.Close()
	if err := remove(n.path()); err != nil {
		return fmt.Errorf("remove network namespace %s: %w", n.name, err)
	}
	return nil
}

// Name is the name that "ip netns" shows.
func (n *NS) Name() string { return n.name }

// Netlink is a route netlink handle inside the namespace.
func (n *NS) Netlink() *netlink.Handle { return n.links }

// Do runs fn on a thread inside the namespace. Sockets that fn opens belong to the namespace.
// Goroutines that fn starts do not run inside. If fn ends its goroutine (t.Fatal), the caller's
// goroutine ends too.
func (n *NS) Do(fn func() error) error {
	return onOwnThread(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", n.name, err)
		}
		return fn()
	})
}

func (n *NS) path() string { return filepath.Join(Dir, n.name) }

// onOwnThread runs fn on a thread whose namespace fn may change. If the thread cannot return to its
// own namespace, it stays locked to the goroutine and ends with it.
func onOwnThread(fn func() error) error {
	err := errFnExited
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		own, openErr := os.Open(threadNS)
		if openErr != nil {
			err = openErr
			return
		}
		defer own.Close()
		defer func() {
			if restoreErr := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); restoreErr != nil {
				err = errors.Join(err, fmt.Errorf("restore network namespace: %w", restoreErr))
				return
			}
			runtime.UnlockOSThread()
		}()
		err = fn()
	}()
	<-done
	if errors.Is(err, errFnExited) {
		runtime.Goexit()
	}
	return err
}

var errFnExited = errors.New("function ended its goroutine")

// program is the short name of the running program, "xsk" for xsk.test. It shows which program left
// a namespace behind.
func program() string {
	base := strings.TrimSuffix(filepath.Base(os.Args[0]), ".test")
	letters := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, strings.ToLower(base))
	return letters[:min(len(letters), 16)]
}
