package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// service is the name of DNS records that name the box (RFC 2782).
const service = "_rocast._tcp"

// errUnnamed says how to name the box.
var errUnnamed = errors.New("no box is named, and DNS has no record " + service + " of type SRV: write --box ADDRESS:PORT or set " + BoxVariable)

// lookupTime is how long DNS may take for everything: three servers for one answer each, as
// resolv.conf has them at most.
const lookupTime = 15 * time.Second

// findBox returns the box that DNS names. Of several records it takes the one that librocast takes:
// all hosts of a group need the same box, so nothing is drawn by lot.
func findBox(ctx context.Context, dns *net.Resolver) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lookupTime, fmt.Errorf("no answer within %v", lookupTime))
	defer cancel()
	_, records, err := dns.LookupSRV(ctx, "", "", service)
	records = slices.DeleteFunc(records, func(r *net.SRV) bool { return r.Port == 0 || r.Target == "." })
	var failure *net.DNSError
	switch {
	case ctx.Err() != nil:
		return "", unanswered(context.Cause(ctx))
	case len(records) == 0 && errors.As(err, &failure) && !failure.IsNotFound:
		return "", unanswered(err)
	case len(records) == 0:
		return "", errUnnamed
	}
	name := func(r *net.SRV) string { return strings.TrimSuffix(r.Target, ".") } // as librocast compares it
	r := slices.MinFunc(records, func(a, b *net.SRV) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(b.Weight, a.Weight), strings.Compare(name(a), name(b)), cmp.Compare(a.Port, b.Port))
	})
	for _, family := range []string{"ip4", "ip6"} {
		if all, _ := dns.LookupNetIP(ctx, family, r.Target); len(all) > 0 {
			return netip.AddrPortFrom(all[0].Unmap(), r.Port).String(), nil
		}
	}
	if ctx.Err() != nil {
		return "", unanswered(context.Cause(ctx))
	}
	return "", errors.New("DNS names the box " + r.Target + ", and has no address of it: write --box ADDRESS:PORT or set " + BoxVariable)
}

func unanswered(why error) error {
	return fmt.Errorf("no box is named, and DNS does not say one: %w: write --box ADDRESS:PORT or set %s", why, BoxVariable)
}
