package client

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/rocast/rocast/ctl/api"
)

// Host is a program on a host that joins groups without a group file: it says its own queue pair,
// and the box waits until all members have come. The program creates the queue pair before Join,
// connects it between Join and Ready, and destroys it after Leave. host/rocast.h is the same for
// programs in C, which also posts operations, falls back and returns.
type Host struct{ client *Client }

// SecretVariable is the variable of the environment with the secret of groups, for requests without
// one.
const SecretVariable = "ROCAST_SECRET"

// PolicyVariable is the variable of the environment with the policy of groups, for requests without
// one.
const PolicyVariable = "ROCAST_POLICY"

// NewHost returns a Host for the address hosts: listen of the box's config. local is the IP of the
// RDMA device, for which the program speaks.
func NewHost(box netip.AddrPort, local netip.Addr) *Host {
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: local.AsSlice(), Zone: local.Zone()}}
	c := newClient(&http.Transport{DialContext: from.DialContext})
	c.address, c.url, c.bodies = box.String(), "http://"+box.String(), "application/json"
	c.remedy = "is rocastd running there, with hosts: in its config, and is " + local.String() + " an address of this host?"
	return &Host{c}
}

// Join joins a group, and waits until all its members have come. The answer says what the queue
// pair is to be connected to: IP, QPN and path MTU, and where a source WRITEs.
func (h *Host) Join(ctx context.Context, group string, own HostRequest) (HostGroup, error) {
	own.Ready = false
	return h.ask(ctx, group, own, func(g *HostGroup) bool { return g.State == api.HostRunning })
}

// Ready says that the queue pair is in state RTS, and waits until the group is clear to send. own
// is what Join was given.
func (h *Host) Ready(ctx context.Context, group string, own HostRequest) (HostGroup, error) {
	own.Ready = true
	return h.ask(ctx, group, own, func(g *HostGroup) bool { return g.ClearToSend })
}

// Follow waits until the group's state differs from the one with the version seen, and returns it:
// whether the group is degraded or has ended, and who its members are. If ctx is canceled
// meanwhile, and own has no port, the box takes the host out of the group after 10 s, unless the
// program asks again.
func (h *Host) Follow(ctx context.Context, group string, own HostRequest, seen string) (HostGroup, error) {
	own.Ready = true
	return h.ask(ctx, group, own, func(g *HostGroup) bool { return g.Version != seen })
}

// Leave ends the membership of this host. The group ends with its source, which its receivers hear
// by Follow. If members with role both are left, they hear that it is degraded and who they are,
// and may join anew.
func (h *Host) Leave(ctx context.Context, group string) error { return h.remove(ctx, group, "") }

// End ends a group for all its members, who hear so by Follow. The host has to be a member that
// sends, and hosts must have made the group: one that a group file describes can only be left.
func (h *Host) End(ctx context.Context, group string) error {
	return h.remove(ctx, group, "?whole=1&tell=1")
}

// AskEdge asks for the mappings of the host's edge, and confirms those that the edge has loaded.
// The answer comes when it has another number than they, or after question.Wait.
func (h *Host) AskEdge(ctx context.Context, question EdgeQuestion) (answer EdgeAnswer, err error) {
	question.Protocol = api.EdgeProtocol
	return answer, h.client.post(ctx, api.EdgePath, question, &answer)
}

func (h *Host) remove(ctx context.Context, group, query string) error {
	var removed api.Removed
	return h.client.do(ctx, http.MethodDelete, api.HostsPath+"/"+url.PathEscape(group)+query, nil, &removed)
}

// askAgain is the pause between two questions that the box answers at once.
const askAgain = 100 * time.Millisecond

// ask asks until the answer is the one that is waited for. At the end of ctx the error says what is
// missing.
func (h *Host) ask(ctx context.Context, group string, own HostRequest, enough func(*HostGroup) bool) (g HostGroup, err error) {
	if own.Secret == "" {
		own.Secret = os.Getenv(SecretVariable)
	}
	if own.Policy == "" {
		own.Policy = os.Getenv(PolicyVariable)
	}
	for {
		wait := api.MaxEventWait
		if end, ends := ctx.Deadline(); ends { // the last answer says for whom the group waits
			wait = max(0, min(wait, time.Until(end)-time.Second))
		}
		q := url.Values{"seen": {g.Version}, "wait": {strconv.Itoa(int(wait / time.Second))}}
		next := HostGroup{}
		err := h.client.post(ctx, api.HostsPath+"/"+url.PathEscape(group)+"?"+q.Encode(), own, &next)
		switch {
		case ctx.Err() != nil && g.Name != "":
			return g, api.Errorf(api.Unavailable, "group %s is not complete (%v): %s", group, ctx.Err(), missing(&g))
		case err != nil:
			return g, err
		}
		if g = next; enough(&g) {
			return g, nil
		}
		if g.State == api.HostEnded {
			return g, api.Errorf(api.NotFound, "%s", g.Reason)
		}
		if wait < time.Second { // the box answers at once
			select {
			case <-ctx.Done():
			case <-time.After(askAgain):
			}
		}
	}
}

// missing says what a group waits for.
func missing(g *HostGroup) string {
	if g.State != api.HostGathering {
		return g.Reason
	}
	text := "only these have come:"
	for _, ip := range g.Came {
		text += " " + ip
	}
	return text
}
