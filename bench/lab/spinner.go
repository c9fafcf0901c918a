package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// lookEvery is how often a Spinner looks. What a thread has used since the last look counts for the
// CPU on which it is now.
const lookEvery = 20 * time.Millisecond

// Spinner follows a process whose threads spin while they wait for work, and give way to others
// that want the CPU. The kernel does not say which CPUs a thread has used, so a Spinner looks
// often.
type Spinner struct {
	dir  string
	stop chan struct{}
	all  sync.WaitGroup

	mu   sync.Mutex
	used map[string]uint64 // ticks of each thread, by its ID
	cpus []uint64          // by number: ticks that threads have used of it
}

// Follow follows a process until Close is called.
func Follow(pid int) (*Spinner, error) {
	s := &Spinner{dir: filepath.Join("/proc", strconv.Itoa(pid), "task"), stop: make(chan struct{}), used: map[string]uint64{}}
	if err := s.look(); err != nil {
		return nil, err
	}
	s.all.Go(func() {
		every := time.NewTicker(lookEvery)
		defer every.Stop()
		for {
			select {
			case <-s.stop:
				return
			case <-every.C:
				_ = s.look() // AllTicks returns the error, if it lasts
			}
		}
	})
	return s, nil
}

// Close ends what Follow has started.
func (s *Spinner) Close() {
	close(s.stop)
	s.all.Wait()
}

// AllTicks returns the ticks of each CPU since the boot, with those of the process.
func (s *Spinner) AllTicks() ([]Ticks, error) {
	ticks, err := allTicks()
	err = errors.Join(err, s.look())
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range min(len(ticks), len(s.cpus)) {
		ticks[i].spun = s.cpus[i]
	}
	return ticks, err
}

// look adds what each thread has used since the last look.
func (s *Spinner) look() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	threads, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, thread := range threads {
		text, err := os.ReadFile(filepath.Join(s.dir, thread.Name(), "stat"))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // the thread ended
		}
		if err == nil {
			err = s.add(thread.Name(), string(text))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// add adds what a thread has used, of which the kernel says this.
func (s *Spinner) add(thread, stat string) error {
	const user, system, processor = 11, 12, 36 // fields behind the name, which ends with the last bracket
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= processor {
		return fmt.Errorf("the state of thread %s has %d fields", thread, len(fields))
	}
	var n [3]uint64
	for i, field := range []int{user, system, processor} {
		var err error
		if n[i], err = strconv.ParseUint(fields[field], 10, 32); err != nil {
			return fmt.Errorf("the state of thread %s: %w", thread, err)
		}
	}
	used, cpu := n[0]+n[1], int(n[2])
	for len(s.cpus) <= cpu {
		s.cpus = append(s.cpus, 0)
	}
	s.cpus[cpu] += used - min(used, s.used[thread])
	s.used[thread] = used
	return nil
}
