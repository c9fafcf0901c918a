package gather

import (
	"math"
	"net/netip"
	"reflect"
	"regexp"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

const (
	maxMembers = mft.MaxPaths + 1
	// MaxRegions is what the kernel's engine carries (mft.CompileBlock).
	MaxRegions = 4
	maxNumber  = 1<<24 - 1 // of QPNs and PSNs
)

var secretForm = regexp.MustCompile(`^[A-Za-z0-9_.+/=-]{0,64}$`)

// Host is a host that has come, with what its program says of its queue pair.
type Host struct {
	IP netip.Addr
	api.HostRequest
	role   groupfile.Role
	policy groupfile.HostPolicy
	last   time.Time // of its last question
	asks   int       // questions of the host that wait for an answer
	over   chan struct{}
	// refusal says why the host waits no more, if it has no group.
	refusal error
}

// Anew returns a copy of the host that has not come to a hall yet.
func (h *Host) Anew() *Host {
	return &Host{IP: h.IP, HostRequest: h.HostRequest, role: h.role, policy: h.policy, over: make(chan struct{})}
}

// Over is closed when the host waits no more: its group was created or refused, it has left, or
// another program of it has come.
func (h *Host) Over() <-chan struct{} { return h.over }

// Refusal returns why the host waits no more. It is nil if the host waits or its group was created;
// what happens to the host after that is in Hall.Ended.
func (h *Host) Refusal() error { return h.refusal }

// Is reports whether two hosts are the same program, with the same queue pair. A program that
// starts again may get the number of the queue pair that was there before.
func (h *Host) Is(o *Host) bool {
	return h.IP == o.IP && reflect.DeepEqual(h.HostRequest, o.HostRequest)
}

// Sends reports whether the host has a role that sends.
func (h *Host) Sends() bool { return h.role != groupfile.Receiver }

// Shows refuses a host that does not show the secret of a group.
func (h *Host) Shows(group string, secret groupfile.Secret) error {
	if groupfile.SecretOf(h.Secret) == secret {
		return nil
	}
	return api.Errorf(api.Forbidden, "%v does not show the secret of group %s, which is that of its first member; set ROCAST_SECRET to the same at all its hosts",
		h.IP, group)
}

// Agrees refuses a host that says another policy than the group has, which runs.
func (h *Host) Agrees(group string, policy feedback.Policy) error {
	if h.policy.IsOf(policy) {
		return nil
	}
	return api.Errorf(api.BadRequest, "%v says policy %s, and group %s runs with another one; write what rocast group show %[3]s shows, or no policy", h.IP, h.Policy, group)
}

// NewHost refuses what no group can have.
func NewHost(ip netip.Addr, r api.HostRequest) (*Host, error) {
	h := &Host{IP: ip, HostRequest: r, over: make(chan struct{})}
	switch r.Role {
	case groupfile.Receiver.String():
		h.role = groupfile.Receiver
	case groupfile.Source.String():
		h.role = groupfile.Source
	case groupfile.Both.String():
		h.role = groupfile.Both
	default:
		return nil, api.Errorf(api.BadRequest, "role is %q; write receiver, source or both", r.Role)
	}
	for _, n := range []struct {
		name        string
		value       uint64
		least, most uint64
	}{
		{"qpn", uint64(r.QPN), 2, maxNumber - 1}, {"psn", uint64(r.PSN), 0, maxNumber}, {"sendPSN", uint64(r.SendPSN), 0, maxNumber},
		{"members", uint64(max(r.Members, 0)), 2, maxMembers}, {"regions", uint64(len(r.Regions)), 0, MaxRegions},
	} {
		if n.value < n.least || n.value > n.most {
			return nil, api.Errorf(api.BadRequest, "%s is %d; it may be %d to %d", n.name, n.value, n.least, n.most)
		}
	}
	if mtu := r.MTU; mtu < 256 || mtu > 4096 || mtu&(mtu-1) != 0 {
		return nil, api.Errorf(api.BadRequest, "mtu is %d; write 256, 512, 1024, 2048 or 4096", mtu)
	}
	if !secretForm.MatchString(r.Secret) {
		return nil, api.Errorf(api.BadRequest, "the secret may have up to 64 letters, digits and characters of -_.+/=")
	}
	policy, err := groupfile.ReadHostPolicy(r.Policy, r.MTU)
	if err != nil {
		return nil, api.Errorf(api.BadRequest, "%v", err)
	}
	h.policy = policy
	if r.SendPSN != 0 && h.role != groupfile.Both {
		return nil, api.Errorf(api.BadRequest, "sendPSN is only for role both; the psn of a source is the first that it sends")
	}
	if len(r.Regions) > 0 && h.role == groupfile.Source {
		return nil, api.Errorf(api.BadRequest, "a source has no regions, because nobody WRITEs to it; leave them out, or write role both")
	}
	for i, region := range r.Regions {
		if region.Length == 0 || region.RKey == nil || *region.RKey > math.MaxUint32 || uint64(region.VA)+region.Length < region.Length {
			return nil, api.Errorf(api.BadRequest, "region %d needs a length, an rkey of 32 bits and an end below 2^64", i+1)
		}
	}
	return h, nil
}

// Member returns the host as a member of a group whose regions have these lengths.
func (h *Host) Member(memory []mft.VirtualRegion) (groupfile.Member, error) {
	m := groupfile.Member{IP: h.IP, QPN: roce.QPN(h.QPN), FirstPSN: roce.PSN(h.PSN), SendPSN: roce.PSN(h.SendPSN), Role: h.role}
	if h.role == groupfile.Source {
		return m, nil
	}
	m.Confirm = true
	if len(h.Regions) != len(memory) {
		return m, api.Errorf(api.BadRequest, "%v has %d regions, and the group has %d; all receivers have equally many", h.IP, len(h.Regions), len(memory))
	}
	for i, r := range h.Regions {
		if r.Length < memory[i].Length {
			return m, api.Errorf(api.BadRequest, "region %d of %v has %d bytes, and that of the group has %d; register a longer one",
				i+1, h.IP, r.Length, memory[i].Length)
		}
		m.Regions = append(m.Regions, mft.Region{VA: uint64(r.VA), Length: memory[i].Length, RKey: uint32(*r.RKey)})
	}
	return m, nil
}
