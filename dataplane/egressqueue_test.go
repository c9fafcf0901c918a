package dataplane

import "testing"

// Without a limit, too, repairs have a bound.
func TestTheShareOfRepairs(t *testing.T) {
	for limit, want := range map[int]int{0: 512 << 10, 100000: 50000, 99999: 49999} {
		e := Egress{LimitBytes: limit}
		if got := e.repairShare(); got != want {
			t.Errorf("limit %d: %d bytes", limit, got)
		}
	}
}

// The queue holds the newest bytes that the port was given. What of it are repairs follows from
// that.
func TestWhichBytesOfAQueueAreRepairs(t *testing.T) {
	q := &newEgressQueues(1, []Egress{{LimitBytes: 2000}})[0]
	give := func(other int, repairs ...int) {
		q.pending = other
		for _, n := range repairs {
			if !q.admitRepair(n) {
				t.Errorf("%d bytes of repairs are refused, and %d are there", n, q.repairs.bytes)
			}
			q.pending += n
		}
		q.gave(q.pending)
	}
	expect := func(unsent, want int) {
		t.Helper()
		if q.look(unsent); q.repairs.bytes != want {
			t.Errorf("%d bytes wait, and %d of them are repairs, want %d", unsent, q.repairs.bytes, want)
		}
	}
	give(500, 100, 200) // oldest first: 500 other bytes, 300 of repairs
	give(0, 50)         // 350
	give(100, 10)
	give(40)
	expect(1000, 360)
	expect(500, 360)
	expect(499, 359)
	expect(160, 20)
	expect(150, 10)
	expect(45, 5)
	expect(40, 0)
	give(0, 1000) // as much as is allowed
	expect(1040, 1000)
	if q.admitRepair(1) {
		t.Error("one byte more is admitted")
	}
	expect(999, 999)
	if !q.admitRepair(1) || q.admitRepair(1) {
		t.Error("there is room for one byte exactly")
	}
	q.gave(1)
	expect(0, 0)
}

// What the port has lost does not count for ever.
func TestRepairsThatThePortHasLostAreForgotten(t *testing.T) {
	q := &newEgressQueues(1, nil)[0]
	for range 100 {
		if !q.admitRepair(repairLimit / 2) {
			t.Fatal("refused, and nothing waits")
		}
		q.gave(repairLimit / 2)
		q.look(0)
	}
}

// So many bursts can be told apart that more would not be worth it. One more is refused, unless it
// follows the last one.
func TestBurstsOfRepairsAreBounded(t *testing.T) {
	q := &newEgressQueues(1, nil)[0]
	unsent := 0
	for range 10 { // across the end of the list
		for range len(q.repairs.bursts) {
			q.gave(1000)
			if !q.admitRepair(10) {
				t.Fatal("refused")
			}
			q.gave(10)
			unsent += 1010
		}
		if q.look(unsent); !q.admitRepair(10) {
			t.Error("what follows the last burst is refused")
		}
		if q.gave(11); q.admitRepair(10) {
			t.Error("one burst too many is admitted")
		}
		q.look(0)
		if unsent = 0; q.repairs.bytes != 0 {
			t.Errorf("%d bytes of repairs in an empty queue", q.repairs.bytes)
		}
	}
}
