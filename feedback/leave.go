package feedback

// leave makes the group stop waiting for path i. The floor may rise, because the path no longer
// holds it down. It may fall, because packets that this path had are at too few others for a
// quorum.
func (rr *replier) leave(i int, part Part) {
	p := &rr.paths[i]
	rr.setPending(p, 0)
	p.part = part
	rr.endLeg(i)
	rr.recount()
	rr.endIfTooFew()
}

// evict takes a receiver out of the group and reports that.
func (rr *replier) evict(i int, acts []Action) []Action {
	rr.leave(i, PartGone)
	return append(acts, Action{Kind: Notice, Note: NoteEvicted, Path: i, PSN: rr.paths[i].acked.Next()})
}

// fallBehind takes path i out of the group and reports that it is behind.
func (rr *replier) fallBehind(i int, acts []Action) []Action {
	rr.leave(i, PartBehind)
	return append(acts, Action{Kind: Notice, Note: NoteBehind, Path: i, PSN: rr.paths[i].acked.Next()})
}
