package main

import (
	"errors"

	"github.com/cilium/ebpf"

	"github.com/rocast/rocast/bpf"
	"github.com/rocast/rocast/ctl"
	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/dataplane/afxdp"
	"github.com/rocast/rocast/dataplane/xsk"
)

// probe runs the probes that need what the daemon gives up when it is ready. They keep their
// results.
func probe() {
	for _, f := range bpf.Features() {
		_ = f.Check()
	}
	for _, f := range xsk.Features() {
		_ = f.Supported()
	}
	_ = address.CheckMarks()
}

// features says which kernel features that the daemon uses this kernel has.
func features() []ctl.Feature {
	var list []ctl.Feature
	for _, f := range bpf.Features() {
		list = append(list, answered(ctl.Feature{Name: f.Name, Since: f.Since}, f.Check()))
	}
	for _, f := range xsk.Features() {
		list = append(list, answered(ctl.Feature{Name: f.Name, Since: f.Kernel, Fallback: f.Fallback}, f.Supported()))
	}
	fanOut := ctl.Feature{Name: "kernel-fan-out", Since: "5.18", Fallback: "every packet of a group goes through " +
		"user space"}
	merging := ctl.Feature{Name: "kernel-ack-merging", Since: "5.18", Fallback: "the ACKs of a group whose packets the kernel " +
		"carries go through user space"}
	noFanOut, noMerging := afxdp.CheckFanOut()
	wide := ctl.Feature{Name: "kernel-multi-buffer", Since: "6.3", Fallback: "the packets of a group with path MTU 4096 go through " +
		"user space, also where one copy of each leaves"}
	list = append(list, answered(fanOut, noFanOut), answered(merging, noMerging), answered(wide, afxdp.CheckSeveralBuffers()))
	marks := ctl.Feature{Name: "address-mark", Since: "5.18", Fallback: "after a crash only the notes in " +
		"the state directory show which addresses rocastd added"}
	return append(list, answered(marks, address.CheckMarks()))
}

// answered adds the result of a probe to f.
func answered(f ctl.Feature, err error) ctl.Feature {
	switch {
	case err == nil:
		f.Status = api.Available
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, errors.ErrUnsupported):
		f.Status = api.Missing
	default:
		f.Status, f.Detail = api.Unknown, err.Error()
	}
	return f
}
