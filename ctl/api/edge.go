package api

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"unicode"
)

// EdgeProtocol is the version of the questions of edges. A box refuses any other.
const EdgeProtocol = 1

// MaxEdgeRegions is the most regions of one mapping. A group whose memory has more is not shared.
const MaxEdgeRegions = 4

// MaxEdgeFailures is the most mappings of an answer that an edge may leave out. What fails more
// often is no trouble of a mapping, and the edge confirms nothing then.
const MaxEdgeFailures = 64

// EdgeQuestion is what the edge of a host asks its box for: the mappings of shared copies to the
// queue pairs at the IP from which the connection comes, or at Host.
type EdgeQuestion struct {
	Protocol int `json:"protocol"` // EdgeProtocol
	// Host is the host that the edge is in front of, where it is not at the host itself. The box's
	// config says who may ask for which host.
	Host netip.Addr `json:"host,omitzero"`
	// Have is the number of the answer whose mappings the edge has loaded, which confirms them. 0:
	// it has loaded none.
	Have uint64 `json:"have"`
	// Part is of an edge that cannot load some mappings of an answer. It confirms the others, and
	// Have says nothing more.
	Part *EdgePart `json:"part,omitempty"`
	// Wait is for how many ms the box may keep the question while its answer has the number Have.
	Wait   int    `json:"waitMs"`
	Attach string `json:"attach"` // where the program is: xdp native, tcx; an operator reads it

	// What follows counts shared copies since the program was loaded.

	Mapped    uint64 `json:"mapped"`    // given to a queue pair
	NoMapping uint64 `json:"noMapping"` // dropped: no mapping has their addresses and QPN
	Refused   uint64 `json:"refused"`   // dropped: not as RoCE has them
}

// Loaded returns the number of the answer that the edge has loaded, wholly or in part.
func (q *EdgeQuestion) Loaded() uint64 {
	if q.Part != nil {
		return q.Part.Number
	}
	return q.Have
}

// EdgePart is what an edge has loaded of an answer.
type EdgePart struct {
	Number uint64        `json:"number"` // of the answer
	Failed []EdgeFailure `json:"failed"` // the mappings that are not loaded
}

// EdgeFailure is a mapping that an edge cannot load. The edge tries it again by itself.
type EdgeFailure struct {
	LegQPN uint32 `json:"legQPN"`
	Reason string `json:"reason"`
}

// IsSame reports whether two parts are of one answer and lack the same mappings.
func (p *EdgePart) IsSame(q *EdgePart) bool {
	if p == nil || q == nil {
		return p == q
	}
	return p.Number == q.Number && slices.EqualFunc(p.Failed, q.Failed, func(a, b EdgeFailure) bool { return a.LegQPN == b.LegQPN })
}

// ShortReason returns what an edge may say, and a box shows, of why a mapping fails. It is cut, and
// has no characters that mean something to a terminal: any program of a host may have written it.
func ShortReason(says string) string {
	const most = 160
	says = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, says)
	if len(says) > most {
		says = strings.ToValidUTF8(says[:most], "") + " ..."
	}
	return says
}

// EdgeAnswer has all mappings that the edge of a host is to have.
type EdgeAnswer struct {
	// Number is never 0. It differs whenever the mappings do, also when the box has been restarted.
	Number   uint64        `json:"number"`
	Mappings []EdgeMapping `json:"mappings"`
}

// Part returns what an edge says that has loaded the answer but for some mappings, which it knows
// by their QPNs. nil: it has loaded all, or says nothing because too many have failed.
func (a *EdgeAnswer) Part(failed map[uint32]error) *EdgePart {
	if len(failed) == 0 || len(failed) > MaxEdgeFailures {
		return nil
	}
	p := &EdgePart{Number: a.Number}
	for qpn, err := range failed {
		p.Failed = append(p.Failed, EdgeFailure{qpn, ShortReason(err.Error())})
	}
	slices.SortFunc(p.Failed, func(a, b EdgeFailure) int { return cmp.Compare(a.LegQPN, b.LegQPN) })
	return p
}

// EdgeMapping says what becomes of the shared copies with one pair of addresses and one QPN: which
// queue pair they are for, and what is added to their numbers. A mapping never changes. Another one
// has another LegQPN.
type EdgeMapping struct {
	Group  string     `json:"group"`
	From   netip.Addr `json:"from"`   // the copies' IP source
	To     netip.Addr `json:"to"`     // the multicast address, which the edge joins
	LegQPN uint32     `json:"legQPN"` // the copies' dest QPN
	Host   netip.Addr `json:"host"`   // for whom the edge asks; it refuses any other
	QPN    uint32     `json:"qpn"`    // of the queue pair at the host
	AddPSN uint32     `json:"addPSN"` // modulo 2^24
	// Regions are where the host has the group's memory. None: VA and R_Key stay as they are.
	Regions []EdgeRegion `json:"regions,omitempty"`
}

// EdgeRegion says what a RETH becomes whose R_Key is RKey and whose VA is one of Length bytes from
// VA.
type EdgeRegion struct {
	VA     Hex    `json:"va"`
	Length uint64 `json:"length"`
	RKey   Hex    `json:"rkey"`
	AddVA  Hex    `json:"addVA"` // modulo 2^64
	ToRKey Hex    `json:"toRKey"`
}
