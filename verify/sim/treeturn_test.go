package sim

import "testing"

// playTree plays a scenario, and returns the run.
func playTree(t *testing.T, s *TreeScenario, change func(*treeRun)) *treeRun {
	t.Helper()
	run := &treeRun{s: s}
	if change != nil {
		change(run)
	}
	if err := run.open(); err != nil {
		t.Fatal(err)
	}
	run.w.play(run.handle, run.finish)
	return run
}

// Members at different boxes have turns, several in each tree.
func TestMembersOfATreeTakeTurns(t *testing.T) {
	trees, turns := 0, 0
	for seed := range uint64(60) {
		s := DrawTree(seed)
		if !s.TakeTurns {
			continue
		}
		trees++
		run := playTree(t, &s, nil)
		if run.w.failure != nil {
			t.Errorf("seed %d: %v", seed, run.w.failure)
		}
		if turns += run.turns; run.turns == 0 {
			t.Errorf("seed %d: nobody had a turn", seed)
		}
	}
	if trees < 15 || turns < 4*trees {
		t.Errorf("%d turns in %d trees", turns, trees)
	}
}

// A box that restarts with the turn before the newest gives new packets the PSNs of old ones.
func TestABoxThatForgetsATurnIsFound(t *testing.T) {
	found := map[Invariant]int{}
	for seed := range uint64(400) {
		s := DrawTree(seed)
		if s.Turns.Crashes == 0 {
			continue
		}
		s.Limit /= 8 // a box that stands still is no news here
		if f := playTree(t, &s, func(run *treeRun) { run.forgets = true }).w.failure; f != nil {
			found[f.Invariant]++
		}
	}
	if found[Links] == 0 {
		t.Errorf("found %v", found)
	}
}
