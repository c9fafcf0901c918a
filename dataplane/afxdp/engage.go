package afxdp

import (
	"errors"
	"fmt"

	"github.com/rocast/rocast/bpf"
	"github.com/rocast/rocast/dataplane"
)

var errLoading = errors.New("the kernel engine is still being loaded")

// planFanOut notes how Engage is to load the kernel's fan-out, if it is asked for.
func (s *Switch) planFanOut(c Config) {
	if s.wantsFanOut = c.FanOut; !s.wantsFanOut {
		return
	}
	load := c.loadFanOut
	if load == nil {
		load = (*bpf.Classifier).LoadFanOut
	}
	s.noFanOut = errLoading
	s.loadFanOut = func() (*bpf.FanOut, error) { return load(s.classifier, tables, kernelRetains(c.RepairMemory)) }
}

// Engage loads the kernel's fan-out, if the config asks for it, and lets the workers use it. If the
// kernel does not have what it takes, everything goes on without. Until then the workers carry all
// packets: the verifier takes a tenth of a second, and the members of a daemon that was killed wait
// for their packets.
//
// Like Open it works in the calling thread's network namespace.
func (s *Switch) Engage() {
	if s.loadFanOut == nil {
		return
	}
	kernel, err := s.loadFanOut()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loadFanOut = nil
	if err == nil {
		var open []*bpf.Port
		for _, f := range s.interfaces {
			if f.xdp != nil {
				open = append(open, f.xdp)
			}
		}
		err = s.classifier.Engage(kernel, open...)
	}
	if err != nil {
		s.noFanOut = fmt.Errorf("kernel-fan-out is not available (rocast features): %w", err)
		s.UseFanOut(nil, s.noFanOut)
		s.warnOnce(dataplane.Warning{
			Text: "AF_XDP carries the packets of every group, because the kernel cannot", Detail: s.noFanOut.Error(),
		})
		return
	}
	f := newFanOut(kernel)
	for g := range s.Table().All {
		if set, ok := portsOf(g); ok {
			f.wantFan(set)
		}
	}
	s.noFanOut = nil
	s.fanOut.Store(f)
	s.publishDevices()
	s.UseFanOut(f, nil)
}
