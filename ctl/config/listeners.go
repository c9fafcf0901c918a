package config

import (
	"net/netip"

	"github.com/rocast/rocast/ctl/yamldoc"
)

// listener is where a key of the config lets the daemon listen.
type listener struct {
	key  string
	line int
	at   netip.AddrPort // not valid: nowhere
}

// checkListeners refuses two listeners of which only one could be opened. lines has the lines of
// the keys api and hosts.
func (c *Config) checkListeners(lines map[string]int) error {
	list := []listener{
		{key: "metrics:", at: c.Metrics},
		{"api: listen", lines["api"], c.API.Listen},
		{"hosts: listen", lines["hosts"], c.Hosts.Listen},
	}
	for i, l := range list {
		for _, other := range list[:i] {
			if l.at.IsValid() && excludes(l.at, other.at) {
				return yamldoc.Errorf(l.line, "%s %v is taken by %s %v; write another port", l.key, l.at, other.key, other.at)
			}
		}
	}
	return nil
}

// excludes reports whether only one of two addresses can be listened at. To Go, 0.0.0.0 and [::]
// both stand for all addresses of both families.
func excludes(a, b netip.AddrPort) bool {
	return a.Port() == b.Port() && (a.Addr() == b.Addr() || a.Addr().IsUnspecified() || b.Addr().IsUnspecified())
}
