package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

const (
	groupsDir   = "groups"
	groupSuffix = ".yaml"
	stateSuffix = ".state"
	idleFile    = "idle"
)

// Store is an open state directory. One process has it at a time.
type Store struct {
	dir  string
	lock *os.File

	mu        sync.Mutex
	forgotten bool // see Forget
}

// Group is a desired group as it was kept.
type Group struct {
	Name  string
	Text  []byte
	State []byte // see PutState; nil: none
	Clean bool   // the daemon stopped cleanly
	Idle  bool   // and the group had never carried data
	Err   error  // Text or State could not be read
}

// Open takes the state directory, which it creates where needed.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(filepath.Join(dir, groupsDir), 0o700); err != nil {
		return nil, fmt.Errorf("create the state directory: %w", err)
	}
	lock, err := takeLock(dir)
	if err != nil {
		return nil, err
	}
	removeUnfinished(filepath.Join(dir, groupsDir))
	return &Store{dir: dir, lock: lock}, nil
}

// Close lets another process have the directory.
func (s *Store) Close() error { return s.lock.Close() }

// Dir is where other packages keep files of their own, written with WriteFile.
func (s *Store) Dir() string { return s.dir }

// Put keeps a group.
func (s *Store) Put(name string, text []byte) error {
	if err := WriteFile(s.path(name), text); err != nil {
		return fmt.Errorf("keep group %s: %w", name, err)
	}
	return nil
}

// Get returns a group's text.
func (s *Store) Get(name string) ([]byte, error) {
	text, err := os.ReadFile(s.path(name))
	if err != nil {
		return nil, fmt.Errorf("read group %s: %w", name, err)
	}
	return text, nil
}

// PutState keeps what became of a group's members; nil forgets it.
func (s *Store) PutState(name string, state []byte) error {
	var err error
	if state != nil {
		err = WriteFile(s.statePath(name), state)
	} else {
		err = removeIfThere(s.statePath(name))
	}
	if err != nil {
		return fmt.Errorf("keep the state of group %s: %w", name, err)
	}
	return nil
}

// Delete forgets a group, whose file somebody else may have removed. Its state goes last: without the group it means
// nothing, and Restore removes it.
func (s *Store) Delete(name string) error {
	err := removeIfThere(s.path(name))
	if err == nil {
		err = s.PutState(name, nil)
	}
	if err == nil {
		err = syncDir(filepath.Join(s.dir, groupsDir))
	}
	if err != nil {
		return fmt.Errorf("forget group %s: %w", name, err)
	}
	return nil
}

// Restore returns the kept groups, by name, and forgets how the last run ended: whatever ends this one is a crash until
// Stopped says otherwise. What cannot be forgotten, because the disk is read-only, does not count either: see Forget. A group
// that cannot be read is returned with its error.
func (s *Store) Restore() ([]Group, error) {
	idle := s.readIdle()
	if s.Forget() != nil {
		idle = nil
	}
	entries, err := os.ReadDir(filepath.Join(s.dir, groupsDir))
	if err != nil {
		return nil, fmt.Errorf("read the kept groups: %w", err)
	}
	var groups []Group
	states := map[string]bool{}
	for _, entry := range entries {
		if name, is := strings.CutSuffix(entry.Name(), stateSuffix); is {
			states[name] = true
		}
		name, ours := strings.CutSuffix(entry.Name(), groupSuffix)
		if !ours || strings.HasPrefix(name, ".") {
			continue
		}
		g := Group{Name: name, Clean: idle != nil, Idle: idle[name]}
		g.Text, g.Err = s.Get(name)
		groups = append(groups, g)
	}
	s.readStates(groups, states)
	return groups, nil
}

// readStates gives the groups their states, and removes those that have lost their group.
func (s *Store) readStates(groups []Group, states map[string]bool) {
	for i := range groups {
		g := &groups[i]
		if !states[g.Name] {
			continue
		}
		delete(states, g.Name)
		var err error
		if g.State, err = os.ReadFile(s.statePath(g.Name)); err != nil {
			g.Err = errors.Join(g.Err, fmt.Errorf("read the state of group %s: %w", g.Name, err))
		}
	}
	for name := range states {
		_ = s.PutState(name, nil) // the next start tries again
	}
}

// Stopped ends a run cleanly: idle are the groups that never carried data.
func (s *Store) Stopped(idle []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgotten = true // by what is written now
	if err := WriteFile(s.idlePath(), []byte(strings.Join(idle, "\n"))); err != nil {
		return fmt.Errorf("record the clean stop: %w", err)
	}
	return nil
}

// readIdle returns nil where there is no record of a clean stop, or none that can be read: that counts as a crash.
func (s *Store) readIdle() (idle map[string]bool) {
	text, err := os.ReadFile(s.idlePath())
	if err != nil {
		return nil
	}
	idle = map[string]bool{}
	for name := range strings.SplitSeq(string(text), "\n") {
		idle[name] = true
	}
	return idle
}

// Forget removes for good what Stopped wrote. As long as it fails a crash would find the record of a stop long ago, so it is
// to be called again.
func (s *Store) Forget() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forgotten {
		return nil
	}
	err := removeIfThere(s.idlePath())
	if err == nil {
		err = syncDir(s.dir)
	}
	if err != nil {
		return fmt.Errorf("forget the record of the last stop: %w", err)
	}
	s.forgotten = true
	return nil
}

func (s *Store) idlePath() string { return filepath.Join(s.dir, idleFile) }

func (s *Store) statePath(name string) string {
	return filepath.Join(s.dir, groupsDir, name+stateSuffix)
}

func (s *Store) path(name string) string { return filepath.Join(s.dir, groupsDir, name+groupSuffix) }
