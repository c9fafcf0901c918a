package feedback

// train handles packets that the source has sent one after the other, and that the caller has at
// one time. The group is plain, so each of them causes one Copy to every active path and nothing
// else. It does the same as one Data event for each: a test holds the two against each other. The
// Copy of a path has the PSN of the first packet and stands for those of all.
func (g *Group) train(now Tick, ev *Event, acts []Action) []Action {
	before := g.source.sent
	if g.policy.repairs() {
		g.heardTrain(now, ev)
	}
	if ev.AckReq {
		g.countsDoubts(now, true) // there is no path in doubt
	}
	if upTo, messages := g.counts(); upTo == before {
		g.source.counted, g.source.messages = ev.PSN, messages.Add(ev.MSN.Sub(0))
	}
	g.source.pos, g.source.asks = ev.PSN, ev.AckReq && ev.Asked == ev.PSN
	g.forward(ev.PSN, ev.Last)
	g.doubts.trim(ev.PSN)
	g.endGuess(now)
	for i := range g.paths {
		p := &g.paths[i]
		if p.part != PartActive {
			continue
		}
		if p.acked == before {
			p.since = now
		}
		if g.policy.repairs() {
			g.sendsTrain(now, i, ev)
		}
		acts = append(acts, Action{Kind: Copy})
		last := &acts[len(acts)-1]
		last.Path, last.PSN = i, before.Next()
	}
	return g.replies(acts)
}
