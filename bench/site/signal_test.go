package site

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Both signals end the program's context, and not the program.
func TestUntilSignal(t *testing.T) {
	for _, s := range []unix.Signal{unix.SIGINT, unix.SIGTERM} {
		ctx, stop := UntilSignal()
		if ctx.Err() != nil {
			t.Error("it ends without a signal")
		}
		if err := unix.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ctx.Done():
		case <-t.Context().Done():
			t.Errorf("%v does not end it", s)
		}
		stop()
	}
}
