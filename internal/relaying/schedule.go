package relaying

import "math/bits"

// Send says that a host passes a block on.
type Send struct{ To, Block int }

// Schedule is how one message gets to all hosts: what each host sends, in this order. A host sends
// a block as soon as it has the block and has begun with everything before it in its list.
type Schedule struct {
	Blocks int // into which the message is cut
	Sends  [][]Send
}

// Schedule is the schedule of a shape: a host sends all blocks to the first receiver, then all
// blocks to the next one.
func (how Shape) Schedule(hosts, blocks int) Schedule {
	s := Schedule{Blocks: blocks, Sends: make([][]Send, hosts)}
	for to := 1; to < hosts; to++ {
		from := how(to)
		for block := range blocks {
			s.Sends[from] = append(s.Sends[from], Send{To: to, Block: block})
		}
	}
	return s
}

// Pipeline is the binomial pipeline (Ganesan and Seshadri, ICDCS 2005), which RDMC uses (Behrens et
// al., DSN 2018). The hosts, a power of two, are the corners of a cube. In each step every host
// exchanges one block with its neighbour along one edge, and the edges take turns. So all hosts
// have all blocks after log2(hosts) - 1 steps more than there are blocks.
func Pipeline(hosts, blocks int) Schedule {
	dimensions := bits.Len(uint(hosts)) - 1
	s := Schedule{Blocks: blocks, Sends: make([][]Send, hosts)}
	has := make([][]bool, hosts)
	for i := range has {
		has[i] = make([]bool, blocks)
	}
	for block := range has[0] {
		has[0][block] = true
	}
	for step := range blocks + dimensions - 1 {
		edge := 1 << (step % dimensions)
		sent := make([]int, hosts)
		for from := range hosts {
			sent[from] = choose(from, step, has[from], has[from^edge])
		}
		for from, block := range sent {
			if block >= 0 {
				s.Sends[from] = append(s.Sends[from], Send{To: from ^ edge, Block: block})
				has[from^edge][block] = true
			}
		}
	}
	return s
}

// choose returns the block that a host sends in a step, or -1: the source begins with another block
// in each step, and the others pass on the newest block that their neighbour lacks.
func choose(from, step int, own, neighbour []bool) int {
	newest := len(own) - 1
	if from == 0 {
		newest = min(step, newest)
	}
	for block := newest; block >= 0; block-- {
		if own[block] && !neighbour[block] {
			return block
		}
		if from == 0 {
			break
		}
	}
	return -1
}
