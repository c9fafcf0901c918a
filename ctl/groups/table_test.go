package groups

import (
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/regions"
	"github.com/rocast/rocast/mft"
)

// While the file of a table is written anew, the groups can be looked at and changed: a slow disk
// must not make handshakes and leases wait.
func TestNobodyWaitsForATableThatIsWrittenAnew(t *testing.T) {
	dir := t.TempDir()
	s := newSet(t, dir)
	text := regexp.MustCompile(`, regions: \[.*?\]`).ReplaceAllString(ctltest.G1, "")
	g := s.put(t, regexp.MustCompile(`memory: .*`).ReplaceAllString(text, "memory: table"))
	change := func(c regions.Change) error {
		_, err := s.ChangeTable("g1", func(v *Version) (*regions.Change, error) {
			c.Receivers = v.File.ReceiverIDs()
			return &c, nil
		})
		return err
	}
	var all []regions.Range
	for i := range uint64(4000) { // more than a pipe holds
		at := mft.Region{VA: 0x1000 + i<<4, Length: 16, RKey: 1}
		all = append(all, regions.Range{VirtualRegion: mft.VirtualRegion{VA: at.VA, Length: 16, RKey: 0x88}, At: []mft.Region{at, at}})
	}
	if err := change(regions.Change{Add: all}); err != nil {
		t.Fatal(err)
	}
	files := filepath.Join(dir, "groups")
	const long = 32 << 20 // a multiple of what the table needs
	if err := os.Truncate(filepath.Join(files, "g1.regions"), long); err != nil {
		t.Fatal(err)
	}
	g.tableEnd = long
	pipe := filepath.Join(files, ".g1.regions.new")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	changed := make(chan error, 1)
	go func() { changed <- change(regions.Change{Remove: []mft.VirtualRegion{all[0].VirtualRegion}}) }()
	disk, err := os.Open(pipe) // when the table begins to be written
	if err != nil {
		t.Fatal(err)
	}
	giveUp := time.AfterFunc(time.Minute, func() { disk.Close() })
	s.Lock()
	if n := s.Named("g1").Table.Len(); n != len(all)-1 {
		t.Errorf("the table has %d regions", n)
	}
	s.Unlock()
	if !giveUp.Stop() {
		t.Error("a group could not be looked at while the file was written")
	}
	disk.Close() // the file cannot be written, which only the log says
	if err := <-changed; err != nil {
		t.Error(err)
	}
}
