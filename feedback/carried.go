package feedback

// An engine in front of the data path may carry the source's packets while the group is plain: a
// new packet is then copied to every path that takes data and causes nothing else, so there is
// nothing to decide. Before the next event of another kind, one Carried event reports all carried
// packets.

// Plain reports whether an engine may carry what follows the highest packet sent: the next packet,
// and any number of new ones behind it up to the Horizon, would each cause one Copy to every path
// whose part is PartActive, and nothing else. Everything else that can happen to the group is an
// event, and Plain is asked again after each.
//
// The result is how many paths are PartActive, 0 if the group is not plain. It falls when a path
// leaves, and only a Data event lets it rise.
//
// This is safe because new packets move only the source's place and the highest packet sent. An
// answer becomes due only when the floor is above the PSN that was acknowledged to the source, and
// in a plain group the two are equal. Where nobody is needed, the floor moves with each packet.
func (g *Group) Plain() (active int) {
	quiet := !g.needsNone() && g.source.known && !g.source.unsure && g.floor.known && g.source.pos == g.source.sent && g.merged.psn == g.floor.psn &&
		g.refusal.syndrome == 0 && g.end.syndrome == 0 && !g.back.awaited && g.retained.repairing == 0 && g.pending == pendingNAKs{}
	if !quiet {
		return 0
	}
	for i := range g.paths {
		p := &g.paths[i]
		switch p.part {
		case PartActive:
			if p.lack != lackNone || p.fresh {
				return 0
			}
			active++
		case PartUnknown, PartJoining, PartDead:
			return 0
		case PartWaiting:
			if g.needsWaiting() { // then it joins
				return 0
			}
		}
	}
	return active
}

// carried handles the packets that an engine carried. It does the same as one Data event for each
// of them. The group may have stopped being plain since the engine was armed, by an answer or
// because time passed: a reply may then be due, because the source's place has moved. A path that
// has left meanwhile got copies that it does not need. No path can have joined, because a path
// joins only at a Data event.
func (g *Group) carried(now Tick, ev *Event, acts []Action) []Action {
	newest := g.source.sent // before these packets
	for i := range g.paths {
		if p := &g.paths[i]; p.part.takesData() && p.acked == newest {
			p.since = now
		}
	}
	if upTo, messages := g.counts(); upTo == newest {
		g.source.counted, g.source.messages = ev.PSN, messages.Add(ev.MSN.Sub(0))
	}
	g.doubtCarried(ev.PSN)
	g.forward(ev.PSN, ev.Last)
	for i := range g.legs {
		if g.paths[i].part.takesData() {
			g.carriedTo(now, i, ev)
		}
	}
	g.source.pos, g.source.asks = ev.PSN, ev.AckReq && ev.Asked == ev.PSN
	g.endGuess(g.pace.seenAt) // these packets came after those that were seen last
	g.pace.seenAt, g.lull = now, lull{}
	return g.replies(acts)
}
