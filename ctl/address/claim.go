package address

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"
)

// Claim is the answer of another host that already has an IP.
type Claim struct {
	MAC       [6]byte
	Interface string
}

func (c Claim) String() string {
	return fmt.Sprintf("%v answers for it on %s", net.HardwareAddr(c.MAC[:]), c.Interface)
}

// A host that is up answers within milliseconds. The second and the third question are sent in case
// an earlier one was lost.
const (
	claimRounds = 3
	claimRound  = 100 * time.Millisecond
	// An address for which nobody but the box itself answered counts as free for so long, unless a
	// host announces it. The addresses of hosts' groups are asked for more often (package hosts),
	// so these groups wait for no answer.
	freeFor = 10 * time.Second
)

// Claimed asks the hosts at an IP's future interfaces whether one has the IP, and returns the
// first claim. The questions follow RFC 5227 and RFC 4862, so no host learns a MAC from them.
// Claimed finds nothing where it cannot ask, for example on an interface without a carrier, and
// does not ask for an IP that the Owner already holds or that was free less than freeFor ago.
// Answers from the box itself are not claims, because the box may have two interfaces on one
// network. Nor are answers of the group's other boxes, which have these MACs. The questions are
// sent in the network namespace of the calling thread.
func (o *Owner) Claimed(ctx context.Context, at []IfAddr, boxes ...[6]byte) (claim Claim, found bool) {
	if len(at) == 0 || o.holds(at[0].IP) {
		return Claim{}, false
	}
	own, err := o.kernel.macs()
	if err != nil {
		return Claim{}, false
	}
	allowed := slices.Concat(own, boxes)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	claims := make(chan Claim, len(at))
	waiting := 0
	for _, p := range at {
		if o.isFree(p) {
			continue
		}
		name, err := o.kernel.name(p.IfIndex)
		if err != nil {
			continue
		}
		q, err := o.kernel.ask(p)
		if err != nil {
			continue
		}
		waiting++
		go func() {
			defer q.close()
			free := true // also for a group that has no part at the other boxes
			mac, err := hear(ctx, q, func(mac [6]byte) bool {
				free = free && !slices.Contains(boxes, mac)
				return !slices.Contains(allowed, mac)
			})
			switch {
			case err == nil:
				claims <- Claim{MAC: mac, Interface: name}
				return
			case errors.Is(err, errUnanswered) && free:
				o.setFree(p)
			}
			claims <- Claim{}
		}()
	}
	for range waiting {
		if c := <-claims; c != (Claim{}) {
			return c, true
		}
	}
	return Claim{}, false
}

// question is a question to the hosts on an interface.
type question interface {
	put() error
	// answer returns the MAC of a host that answers before the deadline.
	answer(deadline time.Time) (mac [6]byte, err error)
	close()
}

// errUnanswered says that all questions were sent and that no answer counts.
var errUnanswered = errors.New("nobody has answered")

// hear sends the question and waits for an answer that counts accepts.
func hear(ctx context.Context, q question, counts func(mac [6]byte) bool) (mac [6]byte, err error) {
	for range claimRounds {
		if err := ctx.Err(); err != nil {
			return mac, err
		}
		if err := q.put(); err != nil {
			return mac, err
		}
		for deadline := time.Now().Add(claimRound); ; {
			mac, err := q.answer(deadline)
			if err != nil {
				break
			}
			if counts(mac) {
				return mac, nil
			}
		}
	}
	return mac, errUnanswered
}

// isFree reports whether nobody but the box itself has answered for an address lately.
func (o *Owner) isFree(p IfAddr) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	at, asked := o.free[p]
	return asked && time.Since(at) < freeFor
}

func (o *Owner) setFree(p IfAddr) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.free, func(_ IfAddr, at time.Time) bool { return time.Since(at) >= freeFor })
	o.free[p] = time.Now()
}

func (o *Owner) holds(ip netip.Addr) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for p := range o.held {
		if p.IP == ip {
			return true
		}
	}
	return false
}
