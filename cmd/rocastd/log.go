package main

import (
	"io"

	"github.com/rocast/rocast/ctl/config"
	"github.com/rocast/rocast/ctl/logs"
)

// newLog returns a log that is written to out, as the config says.
func newLog(c config.Config, out io.Writer) (*logs.Log, error) {
	return logs.New(c.LogFormat, c.LogLevel, out)
}
