package copying

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// Whoever is killed, and whenever: after some runs with --resume everybody has everything, and
// until then no file that is not whole has its name. ROCAST_CP_KILLS sets how many runs are killed.
func TestInterruptedAtRandom(t *testing.T) {
	seeds := 40
	if testing.Short() {
		seeds = 8
	}
	if more, err := strconv.Atoi(os.Getenv("ROCAST_CP_KILLS")); err == nil {
		seeds = more
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { interrupt(t, rand.New(rand.NewPCG(uint64(seed), 0))) })
	}
}

func interrupt(t *testing.T, random *rand.Rand) {
	tree := filepath.Join(t.TempDir(), "tree")
	for i := range 1 + random.IntN(5) {
		path := filepath.Join(tree, fmt.Sprint(random.IntN(2), "/", i))
		write(t, path, bytesOf(random, random.IntN(5*BlockBytes/2)))
		if random.IntN(3) == 0 { // a hole at its end
			if err := os.Truncate(path, 5*BlockBytes/2+int64(random.IntN(100))); err != nil {
				t.Fatal(err)
			}
		}
	}
	dirs := []string{filepath.Join(t.TempDir(), "r0"), filepath.Join(t.TempDir(), "r1"), filepath.Join(t.TempDir(), "r2")}
	for range 1 + random.IntN(3) {
		interruptOnce(t, random, tree, dirs)
	}
	b := newBench(t, len(dirs), tree)
	var hosts []*host
	for _, d := range dirs {
		hosts = append(hosts, b.receiver(d, true).start(t.Context()))
	}
	b.complete(tree, hosts...)
	for _, d := range dirs {
		if list := listOf(t, d); len(list) != 1 {
			t.Errorf("%q are in %s", list, d)
		}
	}
}

func bytesOf(random *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := 0; i < n; i += 100 {
		b[i] = byte(random.Uint32())
	}
	return b
}

// interruptOnce is a run in which somebody is killed at a message.
func interruptOnce(t *testing.T, random *rand.Rand, tree string, dirs []string) {
	t.Helper()
	b := newBench(t, len(dirs), tree)
	b.source.Patience = 2 * time.Second // for who is killed before it reports
	var hosts []*host
	for _, d := range dirs {
		hosts = append(hosts, b.receiver(d, true).start(t.Context()))
	}
	ctx, kill := context.WithTimeout(t.Context(), time.Minute)
	defer kill()
	at, what, messages := 1+random.IntN(14), random.IntN(5), 0
	b.hub.fault = func() {
		if messages++; messages != at {
			return
		}
		switch what {
		case 3:
			kill()
		case 4:
			b.hub.mu.Lock()
			b.hub.broken = errors.New("the group is broken")
			b.hub.mu.Unlock()
		default:
			hosts[what].leave()
			hosts[what].stop()
		}
	}
	_, _ = b.source.Run(ctx) // whatever becomes of it
	for _, h := range hosts {
		h.stop() // it may not have heard of the source
		<-h.ends
	}
	for _, d := range dirs {
		inspect(t, tree, filepath.Join(d, "tree"))
	}
}

// inspect looks for files that are not those of the source.
func inspect(t *testing.T, tree, got string) {
	t.Helper()
	_ = filepath.Walk(got, func(path string, info os.FileInfo, err error) error {
		if err != nil || !info.Mode().IsRegular() || filepath.Base(path)[0] == '.' {
			return nil
		}
		name, _ := filepath.Rel(got, path)
		have, first := os.ReadFile(path)
		want, second := os.ReadFile(filepath.Join(tree, name))
		if first != nil || second != nil || string(have) != string(want) {
			t.Errorf("%s is not the source's: %v, %v", path, first, second)
		}
		return nil
	})
}
