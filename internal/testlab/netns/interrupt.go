package netns

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// living are the namespaces of this process that have a name, and the directories that go at a
// signal. Who makes or removes one holds the lock.
var living = struct {
	sync.Mutex
	all         map[*NS]struct{}
	directories []string
}{all: map[*NS]struct{}{}}

// RemoveAtSignal lets a test that is interrupted remove a directory, too.
func RemoveAtSignal(directory string) {
	living.Lock()
	defer living.Unlock()
	living.directories = append(living.directories, directory)
}

// cleanUpAtSignal lets a test that is interrupted remove its namespaces, and end the processes
// inside and those that it has started elsewhere, before it ends as the signal says. Other programs
// end in their own way. A signal that whoever started the test has let it ignore, as nohup does,
// stays ignored.
func cleanUpAtSignal() {
	heard := slices.DeleteFunc([]os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP}, signal.Ignored)
	if len(heard) == 0 {
		return // Notify without signals is for all of them
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, heard...)
	go func() {
		s := (<-signals).(unix.Signal)
		living.Lock() // for good: nothing is made any more
		killDescendants()
		for n := range living.all {
			n.killInside()
			_ = remove(n.path())
		}
		for _, d := range living.directories {
			_ = os.RemoveAll(d)
		}
		killDescendants() // those of tests that went on meanwhile
		signal.Reset(s)
		_ = unix.Kill(os.Getpid(), s)
	}()
}

// killDescendants kills the processes that this one has started, and those that they have.
func killDescendants() {
	children := map[int][]int{}
	for _, pid := range processes() {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, behindName, _ := strings.Cut(string(stat), ") ") // the name may have spaces
		if fields := strings.Fields(behindName); len(fields) > 1 {
			parent, _ := strconv.Atoi(fields[1])
			children[parent] = append(children[parent], pid)
		}
	}
	for left := children[os.Getpid()]; len(left) > 0; left = left[1:] {
		left = append(left, children[left[0]]...)
		_ = unix.Kill(left[0], unix.SIGKILL)
	}
}

// processes returns the IDs of all processes.
func processes() (pids []int) {
	paths, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range paths {
		pid, _ := strconv.Atoi(filepath.Base(p))
		pids = append(pids, pid)
	}
	return pids
}

// killInside kills the processes in the namespace. This one is none of them: only threads of it go
// inside.
func (n *NS) killInside() {
	var is unix.Stat_t
	if unix.Fstat(int(n.file.Fd()), &is) != nil {
		return
	}
	inside := fmt.Sprintf("net:[%d]", is.Ino)
	for _, pid := range processes() {
		if in, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil && in == inside && pid != os.Getpid() {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}
