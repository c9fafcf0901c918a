package main

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocast/rocast/bench/hosts"
	"github.com/rocast/rocast/bench/peer"
	"github.com/rocast/rocast/bench/report"
)

func TestBill(t *testing.T) {
	from := reading{
		at: time.Unix(100, 0), process: 1 * time.Second, ingress: 2 * time.Second, softirq: 3 * time.Second,
		hosts: 4 * time.Second, disturbed: 5 * time.Second,
		stats: hosts.Stats{Copies: []uint64{10, 20}, Sent: 30, Resent: 1, WentBack: 1, Repeated: 2, Answered: 3, Heard: 1, Waited: time.Second},
	}
	to := reading{
		at: time.Unix(110, 0), process: 6 * time.Second, ingress: 4 * time.Second, softirq: 4 * time.Second,
		hosts: 7 * time.Second, disturbed: 9 * time.Second,
		stats: hosts.Stats{Copies: []uint64{110, 220}, Sent: 130, Resent: 4, WentBack: 3, Repeated: 9, Answered: 15, Heard: 6, Waited: 5 * time.Second},
	}
	want := report.Sample{
		Seconds: 10, Copies: 300, ProcessCPU: 5, KernelCPU: 3, HostsCPU: 3, Waited: 4, Disturbed: 4,
		Sent: 100, Resent: 3, WentBack: 2, Repeated: 7, Answered: 12, Heard: 5,
	}
	if diff := cmp.Diff(want, from.until(to, false)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	want.HostsCPU = 5
	if diff := cmp.Diff(want, from.until(to, true)); diff != "" {
		t.Errorf("with ingress on the hosts' CPU: -want +got:\n%s", diff)
	}
}

// A short run of one contestant, from the lab to the sample.
func TestSample(t *testing.T) {
	c := peer.Named("c-inplace")[0]
	s := usual(func(*report.Setting) {})
	if why := excuse(c, s); why != "" || os.Geteuid() != 0 {
		t.Skip("needs root, two CPUs and gcc", why)
	}
	got, window, err := sample(context.Background(), c, s, 300*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if got.Copies == 0 || window == 0 || got.Seconds < 0.3 || got.Sent == 0 {
		t.Errorf("got %+v", got)
	}
	// It spins, and taking frames in is work of its own. Others may have the CPU most of the time.
	if got.ProcessCPU <= 0 || got.ProcessCPU > got.Seconds*1.1 || got.KernelCPU <= 0 || got.HostsCPU <= got.KernelCPU {
		t.Errorf("CPU time: %+v", got)
	}
}
