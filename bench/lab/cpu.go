package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/internal/testlab"
)

// CPUs are the machine's CPUs by their use.
type CPUs struct {
	Switch []int // one for each worker
	Hosts  int
}

// allowed are the CPUs that this process could use before it bound itself to one of them.
var allowed = sync.OnceValues(func() (cpus []int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("read the CPU affinity: %w", err)
	}
	for cpu := 0; len(cpus) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
})

const moreCPUs = "take a machine with more, or allow more (taskset, the cpuset of a container)"

// SplitCPUs chooses among the CPUs that this process may use: the last one for the hosts, the first
// ones for the workers. If there are no more CPUs than workers, the last worker shares the hosts'
// CPU.
func SplitCPUs(workers int) (CPUs, error) {
	all, err := allowed()
	switch {
	case err != nil:
		return CPUs{}, err
	case len(all) < 2:
		return CPUs{}, fmt.Errorf("a measurement needs two CPUs, one for the switch and one for the hosts, and "+
			"this process may use %d; %s", len(all), moreCPUs)
	case workers > len(all):
		return CPUs{}, fmt.Errorf("%d workers need as many CPUs, and this process may use %d; %s",
			workers, len(all), moreCPUs)
	}
	return CPUs{Switch: all[:workers], Hosts: all[len(all)-1]}, nil
}

// Pin binds a process or thread, and all that it starts later, to CPUs. 0 is the calling thread.
func Pin(tid int, cpus ...int) error {
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinity(tid, &set); err != nil {
		return fmt.Errorf("bind thread %d to CPUs %v: %w", tid, cpus, err)
	}
	return nil
}

// pinLiving binds those of the threads that still live, and returns them. The threads of an earlier
// lab of this process have the same names, and the kernel ends them some time after its ports.
func pinLiving(tids []int, cpu int) (living []int, err error) {
	for _, tid := range tids {
		switch err := Pin(tid, cpu); {
		case err == nil:
			living = append(living, tid)
		case !errors.Is(err, unix.ESRCH):
			return nil, err
		}
	}
	return living, nil
}

// PinProcess binds all present threads of this process. Threads that they start later inherit this.
func PinProcess(cpu int) error {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err == nil {
			err = Pin(tid, cpu)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// CPUTimes returns the CPU time of several processes together.
func CPUTimes(pids []int) (sum time.Duration, err error) {
	for _, pid := range pids {
		t, err := testlab.CPUTime(pid)
		if err != nil {
			return 0, err
		}
		sum += t
	}
	return sum, nil
}

// napiThreads returns the kernel threads that receive frames at the box's ports.
func (l *Lab) napiThreads() ([]int, error) { return kernelThreads(l.isNAPI) }

// SoftirqThreads returns the kernel threads that do the work which softirqs on these CPUs leave
// over. On the switch's CPUs the forwarder has caused that work.
func SoftirqThreads(cpus []int) ([]int, error) {
	return kernelThreads(func(comm string) bool {
		return slices.ContainsFunc(cpus, func(cpu int) bool { return comm == fmt.Sprintf("ksoftirqd/%d\n", cpu) })
	})
}

func kernelThreads(wanted func(comm string) bool) (pids []int, err error) {
	comms, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return nil, err
	}
	for _, file := range comms {
		name, err := os.ReadFile(file)
		if err != nil || !wanted(string(name)) {
			continue // another thread, or it ended meanwhile
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// isNAPI reports whether the name of a kernel thread, napi/DEVICE-NUMBER, has a port of the box.
func (l *Lab) isNAPI(comm string) bool {
	rest, ok := strings.CutPrefix(comm, "napi/")
	end := strings.LastIndexByte(rest, '-')
	if !ok || end < 0 {
		return false
	}
	for _, p := range l.Ports {
		if p.Name == rest[:end] {
			return true
		}
	}
	return false
}

// Delays returns the time that the threads of processes were ready to run and had no CPU, because
// other processes used it.
func Delays(pids []int) (sum time.Duration, err error) {
	for _, pid := range pids {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*/schedstat", pid))
		if err != nil {
			return 0, err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
				continue // the thread ended
			}
			if err != nil {
				return 0, err
			}
			var ran, waited int64
			if _, err := fmt.Sscan(string(text), &ran, &waited); err != nil {
				return 0, fmt.Errorf("read %s: %w", file, err)
			}
			sum += time.Duration(waited)
		}
	}
	return sum, nil
}
