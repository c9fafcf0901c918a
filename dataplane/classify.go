package dataplane

import (
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Class says where a classifier sends a frame.
type Class uint8

const (
	ToKernel  Class = iota // not a group's
	ToGroup                // to the group found, which is mft.NoGroup where only the address is a group's
	OwnSource              // nowhere: it comes from an address that the box speaks for
)

// Classify is the classifier of ports without an XDP program, the in-memory twins: it answers for a frame what
// bpf/classifier.c does from the same keys. The group and the kind are those of a frame with class ToGroup.
func Classify(t *mft.Table, head []byte) (mft.GroupID, Kind, Class) {
	var v roce.View
	if err := v.Decode(head, len(head)); err != nil && err != roce.ErrOpcode {
		return 0, 0, ToKernel
	}
	kind := kindOf(&v, head)
	var id mft.GroupID
	var found bool
	if kind == KindCM { // names no group's QP
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
