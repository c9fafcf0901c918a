package relaying

import (
	"slices"
	"testing"
)

func TestSchedulesOfShapes(t *testing.T) {
	for _, c := range []struct {
		name   string
		how    Shape
		blocks int
		want   [][]Send
	}{
		{"unicast", Unicast, 1, [][]Send{{{1, 0}, {2, 0}, {3, 0}}, nil, nil, nil}},
		{"chain", Chain, 2, [][]Send{{{1, 0}, {1, 1}}, {{2, 0}, {2, 1}}, {{3, 0}, {3, 1}}, nil}},
		{"binomial", Binomial, 1, [][]Send{{{1, 0}, {2, 0}}, {{3, 0}}, nil, nil}}, // the larger subtree first
	} {
		got := c.how.Schedule(4, c.blocks)
		if got.Blocks != c.blocks || !slices.EqualFunc(got.Sends, c.want, slices.Equal) {
			t.Errorf("%s: %+v, want %v", c.name, got, c.want)
		}
	}
}

// If every host begins one send in each step, the binomial pipeline takes the least number of steps
// that is possible. A host sends only what it has, and gets no block twice.
func TestThePipelineTakesTheFewestSteps(t *testing.T) {
	for _, c := range []struct{ hosts, blocks, steps int }{{2, 1, 1}, {2, 5, 5}, {4, 1, 2}, {4, 6, 7}, {8, 1, 3}, {8, 2, 4}, {8, 20, 22}, {16, 33, 36}} {
		s := Pipeline(c.hosts, c.blocks)
		if got := steps(t, s); got != c.steps {
			t.Errorf("%d hosts, %d blocks: %d steps, want %d", c.hosts, c.blocks, got, c.steps)
		}
	}
}

// The steps of a chain and of a tree of four hosts are as in any textbook.
func TestStepsOfOtherSchedules(t *testing.T) {
	for want, s := range map[int]Schedule{3: Shape(Unicast).Schedule(4, 1), 6: Shape(Chain).Schedule(4, 4), 2: Shape(Binomial).Schedule(4, 1)} {
		if got := steps(t, s); got != want {
			t.Errorf("%+v: %d steps, want %d", s, got, want)
		}
	}
}

// steps plays a schedule, in which a host begins one send a step, until all hosts have all blocks.
func steps(t *testing.T, s Schedule) int {
	t.Helper()
	hosts := len(s.Sends)
	has := make([]map[int]bool, hosts)
	for i := range has {
		has[i] = map[int]bool{}
	}
	for block := range s.Blocks {
		has[0][block] = true
	}
	next, missing := make([]int, hosts), (hosts-1)*s.Blocks
	for step := 0; ; step++ {
		if missing == 0 {
			return step
		}
		var arrive []func()
		for i := range hosts {
			if next[i] == len(s.Sends[i]) || !has[i][s.Sends[i][next[i]].Block] {
				continue
			}
			send := s.Sends[i][next[i]]
			next[i]++
			arrive = append(arrive, func() {
				if has[send.To][send.Block] {
					t.Errorf("host %d gets block %d twice", send.To, send.Block)
				}
				has[send.To][send.Block] = true
				missing--
			})
		}
		if len(arrive) == 0 {
			t.Fatalf("nobody sends, and %d blocks are missing: %+v", missing, s)
		}
		for _, f := range arrive {
			f()
		}
	}
}
