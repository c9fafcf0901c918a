package perftest

import (
	"errors"
	"fmt"
	"net/netip"
)

// refusal is the reason that a group cannot carry a run. It is one sentence for the user who
// started the run.
type refusal string

func (r refusal) Error() string { return string(r) }

func refuse(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

func isRefusal(err error) bool {
	var r refusal
	return errors.As(err, &r)
}

// checkKey refuses a key of a test that no group can carry. The parameter side names the side that
// sent the key, and at is the address of that side.
func checkKey(side string, at netip.Addr, k key) error {
	switch {
	case k.OutReads != 1:
		return refuse("%s wants to have %d READs or atomics outstanding; a group cannot merge their responses, so "+
			"run ib_write_bw or ib_send_bw", side, k.OutReads)
	case k.SRQN != 0:
		return refuse("%s uses XRC or DC (-c); a group connects RC queue pairs only", side)
	case k.QPN < 2 || k.QPN == 0xFFFFFF:
		return refuse("%s names queue pair %#x, which no RC connection has", side, uint32(k.QPN))
	case k.GID != at:
		return refuse("%s has the GID of %v, and packets go by GID; choose the GID of %v there (-x), or connect "+
			"from %v", side, k.GID, at, k.GID)
	case k.VA > ^(regionBytes - 1):
		return refuse("%s names memory beyond 2^64", side)
	}
	return nil
}

// checkKeyLength returns the reason that a key line does not have the usual length, or nil.
func checkKeyLength(side string, length int) error {
	switch length {
	case keyBytes:
		return nil
	case plainKeyBytes:
		return refuse("%s sends no GID, so its device is not RoCE", side)
	default:
		return refuse("%s validates data (--data_validation), for which it uses atomics; a group cannot merge "+
			"their responses", side)
	}
}
