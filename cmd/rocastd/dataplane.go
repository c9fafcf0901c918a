package main

import (
	"github.com/rocast/rocast/ctl"
	"github.com/rocast/rocast/ctl/config"
	"github.com/rocast/rocast/dataplane/afxdp"
)

// openSwitch attaches the data path to the config's ports, which are names by now. The function it returns detaches it;
// Run has to have returned.
func openSwitch(c config.Config) (ctl.Switch, func() error, error) {
	s, err := afxdp.Open(afxdp.Config{Ports: c.Ports, Mode: afxdp.Mode(c.Mode), Busy: c.Busy, Workers: c.Workers, FanOut: c.Engine == "auto"})
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}
