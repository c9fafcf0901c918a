package main

import (
	"errors"
	"net"
	"slices"

	"github.com/rocast/rocast/bpf"
	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/config"
	"github.com/rocast/rocast/ctl/server"
	"github.com/rocast/rocast/ctl/store"
	"github.com/rocast/rocast/dataplane/afxdp"
)

// findPorts replaces the globs of a config by the names of interfaces, and checks the bounds of
// these ports. A glob matches the interfaces with the names in have even if they are away.
func findPorts(c *config.Config, have ...string) error {
	there, err := interfaces()
	if err != nil {
		return err
	}
	for _, name := range have {
		there = append(there, config.Interface{Name: name, Plain: true})
	}
	if c.Ports, err = config.ExpandPorts(c.Ports, there); err == nil {
		err = config.CheckEgress(c.Egress, c.Ports)
	}
	if err != nil {
		return mistake{err}
	}
	return nil
}

// expand replaces names of bonds by those of their lower devices.
func expand(ports []string) ([]string, error) {
	there, err := interfaces()
	if err != nil {
		return nil, err
	}
	return config.ExpandPorts(ports, there)
}

// findMistakes returns the mistake with which every start with a config fails, as far as that can
// be seen without opening anything: a running daemon goes on. It replaces the globs in c as
// findPorts does. A start calls it first, and so do --check and a reload: what a reload takes over,
// a restart takes over too.
func findMistakes(c *config.Config, have ...string) error {
	if _, _, err := groupIDs(*c); err != nil {
		return mistake{err}
	}
	if err := findPorts(c, have...); err != nil {
		return err
	}
	if err := afxdp.Check(switchConfig(c)); errors.Is(err, afxdp.ErrConfig) {
		return mistake{err}
	}
	for _, err := range []error{store.Check(c.StateDir), address.Check(addressNotes(c.StateDir)), server.CheckSocket(c.Socket)} {
		if err := aboutPath(err); errors.As(err, new(mistake)) {
			return err
		}
	}
	return nil
}

// check says why the daemon could not start with a config. It finds more than findMistakes: what a
// start would try again later. It replaces the globs in c.
func check(c *config.Config) error { return checkWith(c, nil) }

// checkWith is check for a daemon that has ports already; see findPorts.
func checkWith(c *config.Config, have []string) error {
	if err := findMistakes(c, have...); err != nil {
		return err
	}
	if err := findPaths(c); err != nil {
		return err
	}
	if err := findHolders(c.Ports, have); err != nil {
		return err
	}
	if c.API.On() {
		if _, err := c.API.Files.Name(); err != nil {
			return err
		}
	}
	if c.Etcd.On() {
		if _, err := c.Etcd.Config("check"); err != nil {
			return err
		}
	}
	return nil
}

// findHolders returns an error if an XDP program of somebody else is attached to a port that the
// daemon does not have. A start is tried again then: the program may go.
func findHolders(ports, have []string) error {
	for _, name := range ports {
		if i, err := net.InterfaceByName(name); err == nil && !slices.Contains(have, name) {
			if err := bpf.CheckFree(name, i.Index); err != nil {
				return err
			}
		}
	}
	return nil
}
