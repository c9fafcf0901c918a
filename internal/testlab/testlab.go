// Package testlab has small helpers for tests that use the real kernel. The networks for such tests
// are in its subdirectories: netns (network namespaces and links between them), bed (hosts around a
// box), lossy and slow (links that lose or keep packets).
package testlab

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Patience bounds the wait for something that the kernel does soon. A test that passes never waits
// that long.
const Patience = 30 * time.Second

// NeedRoot skips the test unless it runs as root.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for network namespaces and AF_XDP; run it with sudo")
	}
}

// Long skips a long test under -short: make check runs so, and .ci/run the race detector, which has
// nothing to find in code of one thread, nor in the programs that a test starts.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes long; it runs without -short")
	}
}

// Setting is a number that the environment may say, such as how often a long story is played.
func Setting(t testing.TB, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// Must fails the test if there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Permitted skips the test if err says that root lacks a capability, as in a container, and fails
// it if there is another error.
func Permitted(t testing.TB, err error) {
	t.Helper()
	switch {
	case errors.Is(err, unix.EPERM):
		t.Skipf("needs CAP_NET_ADMIN and CAP_SYS_ADMIN: %v", err)
	case err != nil:
		t.Fatal(err)
	}
}

// Eventually waits until done returns true. It yields the processor between two calls, and soon
// sleeps for a moment instead: a busy machine has other work for it. After the given time it fails
// the test; state is printed then and may be nil.
func Eventually(t testing.TB, within time.Duration, what string, done func() bool, state func() string) {
	t.Helper()
	deadline := time.Now().Add(within)
	for calls := 0; !done(); calls++ {
		if time.Now().Before(deadline) {
			if runtime.Gosched(); calls > 1000 {
				time.Sleep(100 * time.Microsecond)
			}
			continue
		}
		message := fmt.Sprintf("%s: not within %v", what, within)
		if state != nil {
			message += "; " + state()
		}
		t.Fatal(message)
	}
}

// Files are the open files of the process: the number of each and what it is open on, such as
// "7 socket:[1234]".
type Files map[string]bool

// OpenFiles returns the files that the process has open.
func OpenFiles(t testing.TB) Files {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	files := make(Files, len(entries))
	for _, entry := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + entry.Name()); err == nil { // the directory itself is closed again
			files[entry.Name()+" "+target] = true
		}
	}
	return files
}

// Since returns the open files that were not open at before. A count would not do: what an earlier
// test left to the garbage collector is closed at any time.
func (before Files) Since(t testing.TB) []string {
	t.Helper()
	now := OpenFiles(t)
	maps.DeleteFunc(now, func(file string, _ bool) bool { return before[file] })
	return slices.Sorted(maps.Keys(now))
}

// WithoutCapability runs fn in the calling goroutine, on a thread that lacks one of its
// capabilities, such as unix.CAP_NET_ADMIN. If the thread cannot get the capability back, it ends
// with the goroutine.
func WithoutCapability(capability uint, fn func() error) (err error) {
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var had [2]unix.CapUserData // 32 capabilities each
	if err := unix.Capget(&header, &had[0]); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	has := had
	has[capability/32].Effective &^= 1 << (capability % 32)
	if err := unix.Capset(&header, &has[0]); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	err = fn()
	if restore := unix.Capset(&header, &had[0]); restore != nil {
		return errors.Join(err, restore)
	}
	runtime.UnlockOSThread()
	return err
}
