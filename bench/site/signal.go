package site

import (
	"context"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// UntilSignal returns the context of a program, which ends with Ctrl-C and with the signal of
// timeout and systemd. A program that a signal kills leaves its lab behind.
func UntilSignal() (ctx context.Context, stop context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
}
