// Package machine says on which machine a measurement runs.
package machine

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/bench/report"
)

// Describe describes this machine, before a run. A field stays empty if its value cannot be found
// out.
func Describe(bin string) report.Machine {
	m := report.Machine{
		Version: firstLine(filepath.Join(bin, "rocastd"), "--version"), CPU: cpuModel(), CPUs: runtime.NumCPU(),
		Go: runtime.Version(), C: firstLine("gcc", "--version"), OVS: firstLine("ovs-vswitchd", "--version"),
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	m.Busy = busy(2 * time.Second)
	return m
}

// busy returns how many CPUs are in use over the time, on average, with what the hypervisor gives
// to others. A load average would count the compiler that made the benchmark a minute ago.
func busy(over time.Duration) float64 {
	before := procStat()
	time.Sleep(over)
	return inUse(before, procStat())
}

func procStat() string {
	text, _ := os.ReadFile("/proc/stat")
	return string(text)
}

// inUse returns how many CPUs were in use on average from one text of /proc/stat to the next. The
// text has all CPUs of the machine, also those that this process may not use.
func inUse(before, after string) float64 {
	used, all := cpuTime(before)
	usedThen, allThen := cpuTime(after)
	if allThen == all {
		return 0
	}
	cpus := strings.Count(after, "\ncpu") // the first line has their sum
	return (usedThen - used) / (allThen - all) * float64(cpus)
}

// cpuTime returns what a text of /proc/stat says of all CPUs together: the time that they were in
// use, and all time.
func cpuTime(stat string) (used, all float64) {
	const idle, iowait, guest = 3, 4, 8 // man 5 proc_stat; the guests' time is also the users'
	line, _, _ := strings.Cut(stat, "\n")
	for i, field := range strings.Fields(line) {
		ticks, err := strconv.ParseFloat(field, 64)
		if at := i - 1; err != nil || at >= guest {
			continue
		} else if at != idle && at != iowait {
			used += ticks
		}
		all += ticks
	}
	return used, all
}

func firstLine(name string, args ...string) string {
	output, err := exec.Command(name, args...).Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(output), "\n")
	return strings.TrimSpace(line)
}

func cpuModel() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
