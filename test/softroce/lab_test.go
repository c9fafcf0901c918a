//go:build softroce

package softroce

import (
	"context"
	"errors"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/rocast/rocast/test/softroce/image"
)

// storyLimit bounds one story. A story takes a few seconds.
const storyLimit = 90 * time.Second

// TestLab tests the lab itself, with a plain bridge in the box. rocast has no part in it.
func TestLab(t *testing.T) {
	for _, kernel := range kernels() {
		t.Run(kernel, func(t *testing.T) {
			l := openLab(t, Config{Kernel: kernel, Guests: 2, MTU: MTU4096})
			for _, story := range []struct {
				name string
				run  func(*testing.T, context.Context, *Lab)
			}{
				{"perftest", testPerftest},
				{"write", testWrite},
				{"send", testSend},
				{"read", testRead},
				{"psn-wrap", testPSNWrap},
				{"loss", testLoss},
				{"last-ack-lost", testLastACKLost},
				{"inserted-write", testInsertedWrite},
				{"wrong-rkey", testWrongRKey},
				{"missing-receives", testMissingReceives},
				{"ipv6", testIPv6},
				{"mtu-1024", testMTU1024},
				{"pause", testPause},
				{"power-off", testPowerOff},
				{"panic", testPanic},
			} {
				t.Run(story.name, func(t *testing.T) { story.run(t, testContext(t, storyLimit), l) })
			}
		})
	}
}

// The user space and the kernel of the hosts, as make softroce takes them.
var (
	ofHosts  = flag.String("hosts", "", "the release of Debian of the hosts' user space, `13`; default: that of this machine")
	ofKernel = flag.String("kernel", "", "the kernel `series` of the hosts; default: 6.1 and 6.12")
)

// hereKernel is that of this machine, as the stories name it if the hosts are namespaces.
const hereKernel = "here"

// kernels are those on which the stories are played.
func kernels() []string {
	if *here != "" {
		return []string{hereKernel}
	}
	if *ofKernel != "" {
		return []string{*ofKernel}
	}
	return []string{"6.1", "6.12"}
}

// openLab boots a lab for the test. It skips the test if setup.sh has found no such kernel, unless
// somebody has asked for these hosts by name.
func openLab(t *testing.T, c Config) *Lab {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: taps and a network namespace")
	}
	start := time.Now()
	c.Hosts, c.Here = *ofHosts, *here != ""
	l, err := Open(testContext(t, systemLimit), c) // the box may be a system
	if chosen := *ofHosts != "" || *ofKernel != ""; errors.Is(err, image.ErrNotPrepared) && !chosen {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	if *ofHosts != "" {
		t.Logf("the guests have Debian %s's user space", *ofHosts)
	}
	t.Logf("%d guests with kernel %s in %.1f s on %s", c.Guests, c.Kernel, time.Since(start).Seconds(), l.Accel)
	return l
}

// testContext ends with the test, or after a limit. Hosts that are namespaces of one machine share
// its CPUs with the box and the test, and have more time.
func testContext(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	if *here != "" {
		limit *= 3
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

func testPerftest(t *testing.T, ctx context.Context, l *Lab) {
	client, server := l.Guests[0], l.Guests[1]
	for _, tool := range []string{"ib_write_bw", "ib_send_bw", "ib_read_bw"} {
		args := []string{"-s", "65536", "-n", "200", "-m", "4096"}
		serving, err := server.StartPerftest(ctx, tool, args...)
		if err != nil {
			t.Fatal(err)
		}
		result, err := client.RunPerftest(ctx, server.Addr, tool, args...)
		if err != nil {
			t.Fatal(err)
		}
		if exit, err := serving.Wait(ctx); err != nil || !exit.OK() {
			t.Fatalf("server: %v, %v\n%s", exit, err, serving.Stdout)
		}
		t.Logf("%s: %.2f Gb/s", tool, result.Gbps)
	}
}
