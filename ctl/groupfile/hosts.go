package groupfile

import "github.com/rocast/rocast/ctl/yamldoc"

// Hosts says what programs on hosts may do with a group.
type Hosts uint8

const (
	HostsNothing Hosts = iota
	HostsJoin          // they may join it and leave it
	HostsEnd           // and end it, because hosts have made it
)

var hostsWords = [...]string{HostsNothing: "false", HostsJoin: "true", HostsEnd: "end"}

func (h Hosts) String() string { return hostsWords[h] }

func readHosts(v yamldoc.Value) (Hosts, error) {
	if text, err := v.Text(); err == nil && text == HostsEnd.String() {
		return HostsEnd, nil
	}
	join, err := v.Bool()
	switch {
	case err != nil:
		return HostsNothing, v.Errorf("is neither true nor false nor end; write one of them, without quotes")
	case join:
		return HostsJoin, nil
	}
	return HostsNothing, nil
}
