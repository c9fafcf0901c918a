package dataplane

import (
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Class is a classifier's decision about a frame.
type Class uint8

const (
	ToKernel  Class = iota // not a group's
	ToGroup                // a group's, or mft.NoGroup's if only the address is a group's
	OwnSource              // dropped: it comes from an address that only the box sends from
)

// Classify is the classifier of ports without an XDP program, the in-memory twins. It gives a frame
// the same result as bpf/classifier.h with the same keys. Group and kind are those of a frame with
// class ToGroup.
func Classify(t *mft.Table, head []byte) (mft.GroupID, Kind, Class) {
	var v roce.View
	if err := v.Decode(head, len(head)); err != nil && err != roce.ErrOpcode {
		return 0, 0, ToKernel
	}
	kind := kindOf(&v, head)
	var id mft.GroupID
	var found bool
	if kind == KindCM { // it names no group's QP
		id, found = t.Find(mft.Key{Dst: v.DstIP(head), Match: mft.MatchDst})
	} else {
		id, found = t.Lookup(v.SrcIP(head), v.DstIP(head), v.DestQPN(head))
	}
	if found {
		return id, kind, ToGroup
	}
	if _, own := t.Find(mft.Key{Src: v.SrcIP(head), Match: mft.MatchSrc}); own {
		return 0, 0, OwnSource
	}
	return 0, 0, ToKernel
}

func kindOf(v *roce.View, head []byte) Kind {
	switch op := v.Opcode; {
	case op == roce.OpUDSendOnly && v.DestQPN(head) == 1:
		return KindCM
	case op == roce.OpCNP:
		return KindCNP
	case op.IsResponse():
		return KindFeedback
	}
	return KindData
}
