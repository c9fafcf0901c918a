package copying

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// forget takes files out of the memory.
func forget(t testing.TB, paths ...string) {
	t.Helper()
	for _, p := range paths {
		f, err := os.Open(p)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
		_ = f.Close() // nothing was written
	}
}

// inMemory reports whether the kernel has something of a file, or reads it.
func inMemory(t testing.TB, path string) bool {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var has unix.Cachestat_t
	if err := unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{}, &has, 0); err != nil {
		t.Skip("what is in memory is known since Linux 6.5: ", err)
	}
	return has.Cache > 0
}

// coldFiles makes files that are on the disk alone.
func coldFiles(t testing.TB, dir string, count, bytes int) (paths []string) {
	t.Helper()
	for i := range count {
		paths = append(paths, filepath.Join(dir, fmt.Sprintf("%04d", i)))
		if err := os.WriteFile(paths[i], random(bytes), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	unix.Sync() // what is dirty stays in memory
	if forget(t, paths...); inMemory(t, paths[0]) {
		t.Skip("this file system keeps everything in memory")
	}
	return paths
}

// watcher is a Sender that looks at each message.
type watcher struct {
	Sender
	sees func(message []byte)
}

func (w *watcher) Send(ctx context.Context, message []byte) error {
	w.sees(message)
	return w.Sender.Send(ctx, message)
}

// A source that sends a file has told the kernel of the next files, and so has a receiver that
// reads what it has. Of files that are not read the kernel hears nothing.
func TestTheNextFilesAreReadAhead(t *testing.T) {
	paths := coldFiles(t, t.TempDir(), 2+filesAhead, 2*BlockBytes)
	check := func(who string, of func(i int) string) {
		t.Helper()
		for i := range paths {
			if want := i > 0 && i <= filesAhead && i != 2; i > 0 && inMemory(t, of(i)) != want {
				t.Errorf("%s: file %d is in memory: %v", who, i, !want)
			}
		}
	}
	var entries []Entry
	plan := map[int]wanted{}
	for i, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, Entry{Kind: File, Size: 2 * BlockBytes, ModTime: info.ModTime().UnixNano(), Path: filepath.Base(p), local: p})
		if plan[i] = (wanted{}); i == 2 { // all receivers have it, and have verified it before
			delete(plan, i)
		}
	}
	first := true
	s := &Source{peers: newPeers("", time.Minute, func(Event) {})}
	s.sendBy(&watcher{newHub(), func([]byte) {
		if first {
			check("source", func(i int) string { return paths[i] })
		}
		first = false
	}}, func() int { return 1 })
	if err := s.sendFiles(t.Context(), entries, plan); err != nil || first {
		t.Fatal(err)
	}

	forget(t, paths...)
	target, err := OpenTarget(filepath.Dir(paths[0]), true)
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	first = true
	r := &Receiver{Target: target, ctx: t.Context()}
	target.work = func(int) error {
		if first {
			check("receiver", func(i int) string { return paths[i] })
		}
		first = false
		return nil
	}
	entries[2].Kind = Symlink
	if claims, err := r.claim(entries); err != nil || len(claims) != len(paths)-1 {
		t.Errorf("%d claims, %v", len(claims), err)
	}
}

// BenchmarkColdRead reads and hashes files of which nothing is in memory, with what may be said to
// the kernel before. The ways take turns, so that what else the machine does falls on all of them.
// What a way takes for a GiB is reported, of the clock and of the processor. TMPDIR chooses the
// disk.
func BenchmarkColdRead(b *testing.B) {
	for name, files := range map[string]struct{ count, bytes int }{"large": {1, 256 << 20}, "small": {2048, 16 << 10}} {
		b.Run(name, func(b *testing.B) {
			paths := coldFiles(b, b.TempDir(), files.count, files.bytes)
			entries := make([]Entry, len(paths))
			for i := range entries {
				entries[i] = Entry{Kind: File, Size: int64(files.bytes), local: paths[i]}
			}
			advise := func(how int) func(f *os.File, i int) {
				return func(f *os.File, _ int) { _ = unix.Fadvise(int(f.Fd()), 0, 0, how) }
			}
			var next *upcoming
			ways := []struct {
				name string
				hint func(f *os.File, i int)
			}{
				{"nothing", func(*os.File, int) {}},
				{"random", advise(unix.FADV_RANDOM)},
				{"sequential", advise(unix.FADV_SEQUENTIAL)},
				{"next-files", func(_ *os.File, i int) { next.announce(i, func(int) bool { return true }) }},
			}
			clock, processor := make([]time.Duration, len(ways)), make([]time.Duration, len(ways))
			buffer := make([]byte, BlockBytes)
			rounds := 0
			for ; b.Loop(); rounds++ {
				for n := range ways {
					n = (n + rounds) % len(ways)
					forget(b, paths...)
					next = &upcoming{entries: entries, open: (*Entry).open}
					begin, used := time.Now(), usedTime(b)
					for i := range entries {
						f, err := entries[i].open()
						if err != nil {
							b.Fatal(err)
						}
						ways[n].hint(f, i)
						if err := hashOf(f, sha256.New(), 0, entries[i].Size, buffer, func(int) error { return nil }); err != nil {
							b.Fatal(err)
						}
						_ = f.Close() // nothing was written
					}
					clock[n] += time.Since(begin)
					processor[n] += usedTime(b) - used
				}
			}
			b.ReportMetric(0, "ns/op")
			scale := float64(1<<30) / float64(files.count*files.bytes*rounds)
			for n, w := range ways {
				b.ReportMetric(clock[n].Seconds()*scale, w.name+"-s/GiB")
				b.ReportMetric(processor[n].Seconds()*scale, w.name+"-cpu-s/GiB")
			}
		})
	}
}

// usedTime is the time of the processor that this process has used.
func usedTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
