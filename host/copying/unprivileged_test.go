package copying

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// unprivileged takes from the thread of the test what root may do with files of others. The files
// of t.TempDir are root's then.
func unprivileged(t *testing.T) (restore func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the files of the test are its own")
	}
	runtime.LockOSThread()
	const nobody = 65534
	if err := unix.Setfsuid(nobody); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Setfsuid(0); err != nil {
			t.Error(err)
			return // the thread ends with its goroutine
		}
		runtime.UnlockOSThread()
	}
}
