// Command storage is an example of a program that uses package client: a leader replicates a log of
// blocks to the disks of three replicas. It writes each block once, to a group. A replica's program
// appends the block to its file, calls fsync, and says how many blocks it has stored; a block is
// stored when two of three replicas have said so. What NICs and the box acknowledge says only that
// a block has arrived.
//
// A replica makes durable at once whatever has come while its disk was busy. It has memory for a
// few blocks, and the leader reuses the memory of a block when all replicas have stored it. A
// replica that stores nothing for 2 s, while the others have stored everything, is not waited for
// any more. Each record on the disk has the SHA-256 of the block and of the hash before it: the
// last hash stands for the whole log, and a half-written record is found and cut off at the next
// start.
//
// The command makes its own lab. It kills the box and starts it again, lets the power of a replica
// fail in the middle of a write, and brings that replica back: another one sends it what it lacks.
// At the end all logs are read from the disks, and their hashes compared.
//
// rocast-cp recv --from-peers is no way for a replica that comes back: it copies files that stand
// still, each with its SHA-256, and this log grows meanwhile and lacks only its end.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rocast/rocast/bench/site"
)

func main() {
	bin := flag.String("bin", "build", "directory of rocastd")
	dir := flag.String("dir", "", "directory for the logs, on a disk (default: that of temporary files)")
	seed := flag.Uint64("seed", 1, "of the blocks")
	file := flag.String("figures", "", "measure blocks per second beside three unicasts too, and write the figures to this file as JSON")
	mbit := flag.Int("mbit", 50, "rate of the links while that is measured, Mbit/s")
	short := flag.Bool("short", false, "measure for less than a minute")
	flag.Parse()
	ctx, stop := site.UntilSignal()
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	program := filepath.Join(*bin, "rocastd")
	err := run(ctx, os.Stdout, program, *dir, *seed)
	if err == nil && *file != "" {
		var rows []measured
		if rows, err = measure(ctx, os.Stdout, program, *dir, newPlan(*mbit*1_000_000, *short)); err == nil {
			err = save(rows, *file)
		}
	}
	if err != nil {
		fmt.Println("FAIL:", err)
		os.Exit(1)
	}
	fmt.Println("PASS")
}

const (
	replicas = 3
	some     = 40      // blocks that are stored between two things that happen
	least    = 4 << 10 // bytes of a block
	most     = 1 << 20
)

// story is one run.
type story struct {
	*site.Lab
	*leader
	out    io.Writer
	dir    string
	began  time.Time
	blocks uint64 // that were put
	bytes  uint64
	enough atomic.Bool
}

func run(ctx context.Context, out io.Writer, program, dir string, seed uint64) (err error) {
	s := &story{out: out, began: time.Now()}
	if s.dir, err = os.MkdirTemp(dir, "rocast-storage-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.dir)) }()
	if s.Lab, err = site.Open(ctx, 1+replicas, program); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Lab.Close()) }()
	if s.leader, err = newLeader(s.Lab, s.dir, shape{most: most, slots: 8}); err != nil {
		return err
	}
	if err := s.play(ctx, seed); err != nil {
		return fmt.Errorf("%w\nrocastd's log:\n%s", err, s.Daemon.Log())
	}
	return s.check()
}

// newLeader makes the first host of a lab the leader, and all others replicas.
func newLeader(l *site.Lab, dir string, s shape) (*leader, error) {
	lead := &leader{shape: s, api: l.Daemon.Client(), groupIP: l.GroupIP(), host: l.Hosts[0]}
	for i, h := range l.Hosts[1:] {
		r := &replica{shape: s, host: h, path: filepath.Join(dir, fmt.Sprintf("replica-%d", i+1))}
		if err := r.start(); err != nil {
			return nil, err
		}
		lead.replicas = append(lead.replicas, r)
	}
	return lead, nil
}

// play puts blocks, and beside that lets things happen.
func (s *story) play(ctx context.Context, seed uint64) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	s.to.wentOn = func(r *replica) {
		s.say("the leader goes on without %v, which has stored %d blocks", r.host.IP, r.log.records())
	}
	tasks, both := errgroup.WithContext(ctx)
	tasks.Go(func() error { return s.write(both, rand.New(rand.NewPCG(seed, 0))) })
	tasks.Go(func() error { defer s.enough.Store(true); return s.happen(both) })
	if err := tasks.Wait(); err != nil {
		return err
	}
	if err := s.to.awaitStored(ctx); err != nil {
		return err
	}
	return s.leader.close(ctx)
}

// write puts blocks of 4 KiB to 1 MiB until it is enough.
func (s *story) write(ctx context.Context, draw *rand.Rand) error {
	for !s.enough.Load() {
		block := make([]byte, least<<draw.IntN(9))
		for i := range block {
			block[i] = byte(draw.Uint32())
		}
		if err := s.put(ctx, block); err != nil {
			return fmt.Errorf("block %d: %w", s.blocks, err)
		}
		s.blocks++
		s.bytes += uint64(len(block))
	}
	return nil
}

// say prints what has happened.
func (s *story) say(format string, args ...any) {
	fmt.Fprintf(s.out, "%5.1f s: %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// goes waits until some more blocks are stored.
func (s *story) goes(ctx context.Context) error {
	s.mu.Lock()
	to := s.to
	s.mu.Unlock()
	to.mu.Lock()
	records := to.best(quorum) + some
	to.mu.Unlock()
	return to.waitStored(ctx, records)
}

func (s *story) happen(ctx context.Context) error {
	if err := s.goes(ctx); err != nil {
		return err
	}
	s.say("the box crashes")
	if err := errors.Join(s.Daemon.Kill(), s.Daemon.Start(ctx, s.Box), s.goes(ctx)); err != nil {
		return err
	}
	s.say("the box has started again, and %d more blocks are stored", some)
	lost := s.replicas[replicas-1]
	if err := lost.die(); err != nil {
		return err
	}
	s.say("the power of %v fails in the middle of a write", lost.host.IP)
	if err := errors.Join(s.goes(ctx), s.goes(ctx)); err != nil {
		return err
	}
	done, err := s.restore(ctx, lost)
	if err != nil {
		return err
	}
	s.say("%v is back: it had %d blocks, and has %d after %.0f ms, in the last %.0f of which no block was put",
		lost.host.IP, done.had, done.has, ms(done.took), ms(done.pause))
	return s.goes(ctx)
}

// check reads all logs from the disks. Each has to be whole, and the last hash that of the leader,
// which covers all blocks.
func (s *story) check() error {
	for _, r := range s.replicas {
		if err := r.log.close(); err != nil {
			return err
		}
		log, err := openFile(r.path, r.most)
		if err != nil {
			return err
		}
		defer log.close()
		if log.records() != s.blocks || log.newest() != s.last {
			return fmt.Errorf("%v has %d blocks with hash %x; %d with hash %x were put", r.host.IP, log.records(), log.newest(), s.blocks, s.last)
		}
	}
	fmt.Fprintf(s.out, "%d blocks, %d MiB, are on the disks of all %d replicas, SHA-256 %x\n", s.blocks, s.bytes>>20, replicas, s.last[:8])
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
