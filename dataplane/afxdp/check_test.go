package afxdp

import (
	"errors"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/internal/testlab/netns"
)

// What the driver has is known without opening anything, if the kernel tells (6.3 and later).
func TestACheckFindsAMissingZeroCopy(t *testing.T) {
	w := newWorld(t)
	w.plug(1, netns.VethOptions{})
	lacking := "open port p1: the device has no zero-copy; write mode: copy"
	if _, err := netlink.GenlFamilyGet(netdevFamily); errors.Is(err, unix.ENOENT) {
		lacking = ""
	}
	for mode, want := range map[Mode]string{ModeCopy: "", ModeGeneric: "", ModeZeroCopy: lacking} {
		var got error
		if err := w.box.Do(func() error { got = Check(Config{Ports: []string{"p1", "later"}, Mode: mode}); return nil }); err != nil {
			t.Fatal(err)
		}
		if (got == nil) != (want == "") || got != nil && (got.Error() != want || !errors.Is(got, ErrConfig)) {
			t.Errorf("mode %s: %v, want %s", mode, got, want)
		}
	}
	if output, err := w.box.Exec("ip", "link"); err != nil || strings.Contains(output, "prog/xdp") {
		t.Errorf("the check has attached a program: %s, %v", output, err)
	}
}
