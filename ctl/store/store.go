package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

const (
	groupsDir   = "groups"
	groupSuffix = ".yaml"
	stateSuffix = ".state"
	treeSuffix  = ".tree"
	// The changes of a group's memory, see AppendRegions.
	regionsSuffix = ".regions"
	idleFile      = "idle"
	legsFile      = "legs"
)

// Store is an open state directory. Only one process can have it open.
type Store struct {
	dir  string
	lock *os.File

	texts textLocks

	mu        sync.Mutex
	forgotten bool // see Forget

	// SyncDir makes a rename or a removal in a directory survive a crash of the box. Tests let it
	// fail.
	SyncDir func(dir string) error

	// Damage says why Restore did not trust the record of the last clean stop; nil: it did.
	Damage error
}

// Group is a stored group.
type Group struct {
	Name  string
	Text  []byte
	State []byte // see PutState; nil: no state
	Tree  []byte // see PutTree; nil: the group is on this box only
	Clean bool   // the daemon stopped cleanly and had stored the State by then
	Idle  bool   // the daemon stopped cleanly and the group had never carried data
	Err   error  // not nil if Text or State could not be read
}

// Open locks the state directory, and creates it if it does not exist.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(filepath.Join(dir, groupsDir), 0o700); err != nil {
		return nil, fmt.Errorf("create the state directory: %w", err)
	}
	lock, err := takeLock(dir)
	if err != nil {
		return nil, err
	}
	removeUnfinished(filepath.Join(dir, groupsDir))
	return &Store{dir: dir, lock: lock, SyncDir: syncDir}, nil
}

// Check returns an error if a directory cannot be one for Open. It makes nothing.
func Check(dir string) error {
	groups := filepath.Join(dir, groupsDir)
	info, err := os.Stat(groups)
	if err == nil && !info.IsDir() {
		err = &os.PathError{Op: "mkdir", Path: groups, Err: syscall.ENOTDIR}
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("create the state directory: %w", err)
	}
	return checkLock(dir)
}

// Paths are what Open needs, and makes unless it is there: a directory of a disk that is read-only
// is enough if it has them.
func Paths(dir string) []string {
	return []string{filepath.Join(dir, groupsDir), filepath.Join(dir, lockFile)}
}

// Close releases the directory for other processes.
func (s *Store) Close() error { return dropLock(s.lock) }

// Dir returns the directory, in which other packages store their own files.
func (s *Store) Dir() string { return s.dir }

// Put stores a group. Where the group's state or links are stored already, the text says so: a
// Restore that does not find them then fails the group.
func (s *Store) Put(name string, text []byte) error {
	defer s.texts.lock(name)()
	with := marks{state: isThere(s.beside(name, stateSuffix)), links: isThere(s.beside(name, treeSuffix))}
	if err := s.writeMarked(s.path(name), text, with); err != nil {
		return fmt.Errorf("keep group %s: %w", name, err)
	}
	return nil
}

// Get returns a group's text.
func (s *Store) Get(name string) ([]byte, error) {
	text, _, err := s.get(name)
	return text, err
}

func (s *Store) get(name string) (text []byte, with marks, err error) {
	if text, with, err = readMarked(s.path(name)); err != nil {
		return nil, with, fmt.Errorf("read group %s: %w", name, err)
	}
	return text, with, nil
}

// PutState stores the state of a group's members. A nil state is an empty file: one that is missing
// must not be taken for a state of nothing. A group of an older release may have none.
func (s *Store) PutState(name string, state []byte) error {
	if state == nil {
		was, err := readFile(s.beside(name, stateSuffix))
		_, none := os.Lstat(s.path(name))
		if err == nil && len(was) == 0 || errors.Is(err, os.ErrNotExist) && none == nil {
			return nil
		}
		state = []byte{}
	}
	return s.putBeside(name, stateSuffix, "state", state)
}

// PutTree stores the links between a group's boxes. A nil tree deletes the stored one. If the group
// is stored already, its text says from now on whether there are links. A crash must not leave a
// text that says so without links, so it says so last and ceases to first.
func (s *Store) PutTree(name string, tree []byte) error {
	if tree == nil {
		if err := s.markLinks(name, false); err != nil {
			return fmt.Errorf("keep the links of group %s: %w", name, err)
		}
	}
	if err := s.putBeside(name, treeSuffix, "links", tree); err != nil {
		return err
	}
	if tree != nil {
		_ = s.markLinks(name, true) // the links are stored; without the mark nobody would miss them
	}
	return nil
}

// markLinks lets the stored text of a group say whether it has links. It does nothing to a text
// that is not there or is damaged.
func (s *Store) markLinks(name string, links bool) error {
	defer s.texts.lock(name)()
	text, with, err := readMarked(s.path(name))
	if err != nil || with.links == links {
		return nil
	}
	with.links = links
	return s.writeMarked(s.path(name), text, with)
}

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// putBeside stores a file beside a group's text.
func (s *Store) putBeside(name, suffix, what string, text []byte) error {
	path := s.beside(name, suffix)
	var err error
	if text != nil {
		err = s.writeFile(path, text)
	} else {
		err = removeIfThere(path)
	}
	if err != nil {
		return fmt.Errorf("keep the %s of group %s: %w", what, name, err)
	}
	return nil
}

// Delete removes a group. The group's file may already be gone. It has gone from the disk before
// the files beside it are removed: a crash may leave these without the group, and Restore removes
// them, but no group without them.
func (s *Store) Delete(name string) error {
	err := removeIfThere(s.path(name))
	if err == nil {
		err = s.SyncDir(filepath.Join(s.dir, groupsDir))
	}
	if err == nil {
		err = errors.Join(s.putBeside(name, stateSuffix, "state", nil), s.putBeside(name, treeSuffix, "links", nil), s.DropRegions(name))
	}
	if err != nil {
		return fmt.Errorf("forget group %s: %w", name, err)
	}
	return nil
}

// Restore returns the stored groups, sorted by file name, and removes the record of a clean stop:
// from now on the run counts as crashed until Stopped is called. If the record cannot be removed,
// for example from a read-only disk, Restore ignores the record: see Forget. A group that cannot be
// read is returned with its error.
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
	with := map[string]marks{}
	states, trees, regions := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, entry := range entries {
		if name, is := strings.CutSuffix(entry.Name(), regionsSuffix); is {
			regions[name] = true
		}
		if name, is := strings.CutSuffix(entry.Name(), stateSuffix); is {
			states[name] = true
		}
		if name, is := strings.CutSuffix(entry.Name(), treeSuffix); is {
			trees[name] = true
		}
		name, ours := strings.CutSuffix(entry.Name(), groupSuffix)
		if !ours || strings.HasPrefix(name, ".") {
			continue
		}
		g := Group{Name: name, Clean: idle != nil && !idle[uncleanMark+name], Idle: idle[name]}
		g.Text, with[name], g.Err = s.get(name)
		groups = append(groups, g)
	}
	for i := range groups {
		delete(regions, groups[i].Name)
	}
	for name := range regions {
		_ = s.DropRegions(name) // after an error, the next start tries again
	}
	for i := range groups {
		g := &groups[i]
		if with[g.Name].state && !states[g.Name] {
			g.Err = fmt.Errorf("the state of group %s is missing, which was in %s", g.Name, s.beside(g.Name, stateSuffix))
		}
		if with[g.Name].links && !trees[g.Name] {
			g.Err = errors.Join(g.Err, fmt.Errorf("the links of group %s are missing, which were in %s", g.Name, s.beside(g.Name, treeSuffix)))
		}
	}
	s.readBeside(groups, states, stateSuffix, "state", func(g *Group) *[]byte { return &g.State })
	for i := range groups {
		if len(groups[i].State) == 0 {
			groups[i].State = nil
		}
	}
	s.readBeside(groups, trees, treeSuffix, "links", func(g *Group) *[]byte { return &g.Tree })
	return groups, nil
}

// readBeside adds the files with a suffix to the groups, and removes those that have no group.
func (s *Store) readBeside(groups []Group, there map[string]bool, suffix, what string, into func(*Group) *[]byte) {
	for i := range groups {
		g := &groups[i]
		if !there[g.Name] {
			continue
		}
		delete(there, g.Name)
		var err error
		if *into(g), err = readFile(s.beside(g.Name, suffix)); err != nil {
			g.Err = errors.Join(g.Err, fmt.Errorf("read the %s of group %s: %w", what, g.Name, err))
		}
	}
	for name := range there {
		_ = s.putBeside(name, suffix, what, nil) // after an error, the next start tries again
	}
}

// Stopped records a clean stop. idle are the groups that never carried data, and unclean those
// whose state could not be stored: to them the next start comes after a crash.
func (s *Store) Stopped(idle, unclean []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgotten = true // the new record replaces the old one
	lines := slices.Clone(idle)
	for _, name := range unclean {
		lines = append(lines, uncleanMark+name)
	}
	if err := s.writeFile(s.idlePath(), []byte(strings.Join(lines, "\n"))); err != nil {
		return fmt.Errorf("record the clean stop: %w", err)
	}
	return nil
}

// uncleanMark stands before the name of a group in the record of a clean stop that is not one for
// the group. No name begins with it.
const uncleanMark = "!"

// readIdle returns nil if there is no readable record of a clean stop. The last run then counts as
// crashed.
func (s *Store) readIdle() (idle map[string]bool) {
	text, err := readFile(s.idlePath())
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case errors.Is(err, errEmpty): // an older release writes an empty file if no group is idle
	case err != nil:
		s.Damage = err
		return nil
	}
	idle = map[string]bool{}
	for name := range strings.SplitSeq(string(text), "\n") {
		idle[name] = true
	}
	return idle
}

// Forget removes the record that Stopped wrote and syncs the removal. If Forget fails, a crash
// would leave the record of an earlier stop, so the caller must call Forget again until it
// succeeds.
func (s *Store) Forget() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forgotten {
		return nil
	}
	err := removeIfThere(s.idlePath())
	if err == nil {
		err = s.SyncDir(s.dir)
	}
	if err != nil {
		return fmt.Errorf("forget the record of the last stop: %w", err)
	}
	s.forgotten = true
	return nil
}

// PutLegQPN stores the QPN with which LegQPN lets a restart go on.
func (s *Store) PutLegQPN(next uint32) error {
	return s.writeFile(filepath.Join(s.dir, legsFile), strconv.AppendUint(nil, uint64(next), 10))
}

// LegQPN returns what PutLegQPN has stored last.
func (s *Store) LegQPN() (next uint32, err error) {
	text, err := readFile(filepath.Join(s.dir, legsFile))
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(string(text), 10, 32)
	return uint32(n), err
}

func (s *Store) idlePath() string { return filepath.Join(s.dir, idleFile) }

func (s *Store) beside(name, suffix string) string {
	return filepath.Join(s.dir, groupsDir, name+suffix)
}

func (s *Store) path(name string) string { return filepath.Join(s.dir, groupsDir, name+groupSuffix) }
