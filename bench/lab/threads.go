package lab

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/internal/testlab/netns"
)

// ThreadTime returns the CPU time of one thread of this process until the moment of the call.
func ThreadTime(tid int) (time.Duration, error) {
	const clock = 4 | 2 // CPUCLOCK_PERTHREAD_MASK, CPUCLOCK_SCHED
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^tid)<<3|clock, &t); err != nil {
		return 0, fmt.Errorf("read the CPU time of thread %d: %w", tid, err)
	}
	return time.Duration(t.Nano()), nil
}

// ThreadNAPI moves the receive work of interfaces, which must have NAPI, to kernel threads, and
// returns their process IDs: the threads that were not there before.
//
// sysfs shows the interfaces of the namespace in which it was mounted, so "ip netns exec" mounts
// another.
func ThreadNAPI(ns *netns.NS, interfaces ...string) ([]int, error) {
	isNAPI := func(comm string) bool { return receivesFor(comm, interfaces) }
	before, err := kernelThreads(isNAPI)
	if err != nil {
		return nil, err
	}
	script := fmt.Sprintf("for p in %s; do echo 1 > /sys/class/net/$p/threaded; done", strings.Join(interfaces, " "))
	if _, err := ns.Exec("ip", "netns", "exec", ns.Name(), "sh", "-ec", script); err != nil {
		return nil, fmt.Errorf("make NAPI of %v a thread's: %w", interfaces, err)
	}
	after, err := kernelThreads(isNAPI)
	return slices.DeleteFunc(after, func(pid int) bool { return slices.Contains(before, pid) }), err
}

// receivesFor reports whether the name of a kernel thread, napi/DEVICE-NUMBER, has one of the
// interfaces: other labs of the machine make threads of their own at the same time.
func receivesFor(comm string, interfaces []string) bool {
	return slices.ContainsFunc(interfaces, func(name string) bool { return strings.HasPrefix(comm, "napi/"+name+"-") })
}

// Ticks are how long a CPU was there, how much of that it was idle, and how much a process that
// spins has used of it.
type Ticks struct{ all, idle, spun uint64 }

// allTicks returns the ticks of each CPU since the boot.
func allTicks() ([]Ticks, error) {
	text, err := os.ReadFile("/proc/stat")
	return readTicks(string(text)), err
}

func readTicks(stat string) (cpus []Ticks) {
	for line := range strings.Lines(stat) {
		var name string
		var all [8]uint64 // user, nice, system, idle, waiting for I/O, interrupts, softirqs, stolen
		_, err := fmt.Sscan(line, &name, &all[0], &all[1], &all[2], &all[3], &all[4], &all[5], &all[6], &all[7])
		if err != nil || !strings.HasPrefix(name, "cpu") || name == "cpu" {
			continue
		}
		t := Ticks{idle: all[3] + all[4]}
		for _, n := range all {
			t.all += n
		}
		cpus = append(cpus, t)
	}
	return cpus
}

// Busiest returns the largest share of the time between two moments in which a CPU was not idle.
// The time of the process that spins does not count: it gives way to others that want the CPU.
func Busiest(from, to []Ticks) (share float64) {
	for i := range min(len(from), len(to)) {
		if all := to[i].all - from[i].all; all > 0 {
			spare := to[i].idle - from[i].idle + to[i].spun - from[i].spun
			share = max(share, 1-float64(spare)/float64(all))
		}
	}
	return share
}

// Spun returns how many CPUs the process that spins has used between two moments.
func Spun(from, to []Ticks) (cpus float64) {
	for i := range min(len(from), len(to)) {
		if all := to[i].all - from[i].all; all > 0 {
			cpus += float64(to[i].spun-from[i].spun) / float64(all)
		}
	}
	return cpus
}
