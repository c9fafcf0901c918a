package program

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
)

// service is the name of DNS records that name the box (RFC 2782).
const service = "_rocast._tcp"

// errUnnamed says how to name the box.
var errUnnamed = errors.New("no box is named, and DNS has no record " + service + " of type SRV: write --box ADDRESS:PORT or set " + BoxVariable)

// findBox returns the box that DNS names. Of several records it takes the one that librocast takes:
// all hosts of a group need the same box, so nothing is drawn by lot.
func findBox(ctx context.Context, dns *net.Resolver) (string, error) {
	_, records, _ := dns.LookupSRV(ctx, "", "", service) // without an answer there are none
	records = slices.DeleteFunc(records, func(r *net.SRV) bool { return r.Port == 0 || r.Target == "." })
	if len(records) == 0 {
		return "", errUnnamed
	}
	r := slices.MinFunc(records, func(a, b *net.SRV) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(b.Weight, a.Weight), cmp.Compare(a.Target, b.Target))
	})
	for _, family := range []string{"ip4", "ip6"} {
		if all, _ := dns.LookupNetIP(ctx, family, r.Target); len(all) > 0 {
			return netip.AddrPortFrom(all[0].Unmap(), r.Port).String(), nil
		}
	}
	return "", errors.New("DNS names the box " + r.Target + ", and has no address of it: write --box ADDRESS:PORT or set " + BoxVariable)
}
