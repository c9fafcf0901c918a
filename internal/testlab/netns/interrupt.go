package netns

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// living are the namespaces of this process that have a name. Who makes or removes one holds the
// lock.
var living = struct {
	sync.Mutex
	all map[*NS]struct{}
}{all: map[*NS]struct{}{}}

// cleanUpAtSignal lets a test that is interrupted remove its namespaces, and end the processes
// inside, before it ends as the signal says. Other programs end in their own way.
func cleanUpAtSignal() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	go func() {
		s := (<-signals).(unix.Signal)
		living.Lock() // for good: nothing is made any more
		for n := range living.all {
			n.killInside()
			_ = remove(n.path())
		}
		signal.Reset(s)
		_ = unix.Kill(os.Getpid(), s)
	}()
}

// killInside kills the processes in the namespace. This one is none of them: only threads of it go
// inside.
func (n *NS) killInside() {
	var is unix.Stat_t
	if unix.Fstat(int(n.file.Fd()), &is) != nil {
		return
	}
	inside := fmt.Sprintf("net:[%d]", is.Ino)
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		pid, _ := strconv.Atoi(filepath.Base(p))
		if in, err := os.Readlink(p + "/ns/net"); err == nil && in == inside && pid != os.Getpid() {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}
