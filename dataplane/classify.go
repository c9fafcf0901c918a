package dataplane

import (
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Classify is the classifier of ports without an XDP program, the in-memory
// twins: it answers for a frame what bpf/classifier.c does from the same keys.
// False: the frame is the kernel's.
func Classify(t *mft.Table, head []byte) (id mft.GroupID, kind Kind, ok bool) {
	var v roce.View
	if err := v.Decode(head, len(head)); err != nil && err != roce.ErrOpcode {
		return 0, 0, false
	}
	if v.Opcode == roce.OpUDSendOnly && v.DestQPN(head) == 1 {
		id, ok = t.Find(mft.Key{Addr: v.DstIP(head), Match: mft.MatchDst})
		return id, KindCM, ok
	}
	id, ok = t.Lookup(v.SrcIP(head), v.DstIP(head), v.DestQPN(head))
	switch op := v.Opcode; {
	case op == roce.OpCNP:
		kind = KindCNP
	case op.IsResponse():
		kind = KindFeedback
	default:
		kind = KindData
	}
	return id, kind, ok
}
