package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"
)

// watchEvery is the time between two tables of a command that watches.
const watchEvery = time.Second

// clearScreen moves the cursor of a terminal to its corner and clears what is below it.
const clearScreen = "\x1b[H\x1b[J"

// watchable gives a command that shows something the flag --watch: it shows that again each second.
func (a *app) watchable(cmd *cobra.Command) *cobra.Command {
	show := cmd.RunE
	watch := false
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again each second, until interrupted")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !watch {
			return show(cmd, args)
		}
		a.watching = true
		if err := a.showAgain(func() error { return show(cmd, args) }); err != nil {
			return err
		}
		return a.everySecond(cmd.Context(), 0, func() error { return show(cmd, args) })
	}
	return cmd
}

// everySecond shows something after each second, so many times or, with 0, until ctx is done.
func (a *app) everySecond(ctx context.Context, times int, show func() error) error {
	every := a.every
	if every == 0 {
		every = watchEvery
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for n := 0; times == 0 || n < times; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		err := a.showAgain(show)
		if ctx.Err() != nil {
			return nil // it was interrupted in the middle of a question
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// showAgain writes what show writes at once, so that a terminal does not flicker. A box that is not
// healthy is no reason to stop watching.
func (a *app) showAgain(show func() error) error {
	out := a.stdout
	var table bytes.Buffer
	if a.watching && !a.json && isTerminal(out) {
		table.WriteString(clearScreen)
	}
	a.stdout = &table
	err := show()
	a.stdout = out
	if err != nil && !errors.Is(err, errUnhealthy) {
		return err
	}
	_, err = out.Write(table.Bytes())
	return err
}

func isTerminal(out any) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
