package peer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rocast/rocast/bench/workload"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/afxdp"
	"github.com/rocast/rocast/dataplane/xsk"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// rocastSpec has the options of one of rocast's entries. The other fields are filled in for each
// setting.
type rocastSpec struct {
	Busy     bool
	FanOut   bool
	Repair   bool
	Workers  int
	Ports    []string
	Workload *workload.Workload
}

// startRocast starts rocast's data path in the same way as the daemon. There is no control: the
// next hops are given.
func startRocast(spec rocastSpec) func(s Setting) (*Forwarder, error) {
	return func(s Setting) (*Forwarder, error) {
		spec.Workers, spec.Ports, spec.Workload = s.Workers, s.Lab.PortNames(), s.Workload
		p, err := launchSelf(s, "rocast", spec)
		if err != nil {
			return nil, err
		}
		return p.forwarder(), nil
	}
}

// runRocast runs in the forwarder's process.
func runRocast(input *json.Decoder) (stop func() error, err error) {
	var spec rocastSpec
	if err := input.Decode(&spec); err != nil {
		return nil, err
	}
	config := afxdp.Config{Ports: spec.Ports, Busy: spec.Busy, Workers: spec.Workers, FanOut: spec.FanOut}
	var policy feedback.Policy
	if spec.Repair {
		config.RepairMemory, policy.Repair = repairMemory, feedback.RepairLocal
	}
	s, err := afxdp.Open(config)
	if err != nil {
		return nil, err
	}
	s.Engage()
	for g := range spec.Workload.Groups {
		m := group(spec.Workload, g)
		m.Policy = policy
		if _, err := s.Add(m); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx)
	}()
	return func() error {
		cancel()
		<-ended
		errs := []error{s.Close()}
		if spec.FanOut {
			start := startPackets
			if spec.Repair {
				start = repairPackets
			}
			errs = append(errs, mostlyCarried(s.Switch, uint64(start+moreStartPackets*(spec.Workload.Groups-1))))
		}
		return errors.Join(errs...)
	}, nil
}

// repairMemory is the default of rocastd.yaml.
const repairMemory = 64 << 20

// repairCannot leaves out settings in which repair costs what it costs in the usual one.
func repairCannot(s Setting) string {
	if s.Groups > 1 || s.Receivers != 3 {
		return "repair is measured with one group of three receivers"
	}
	return oneWorker(s)
}

func repairKernelCannot(s Setting) string {
	return cmp.Or(rocastKernelCannot(s), repairCannot(s))
}

// rocastKernelCannot leaves out the settings that the kernel would hand to AF_XDP, which is another
// contestant.
func rocastKernelCannot(s Setting) string {
	switch {
	case s.FrameBytes() > xsk.FrameBytes:
		return "frames of several buffers stay with AF_XDP"
	case s.Groups > afxdp.KernelGroups:
		return fmt.Sprintf("the kernel carries %d groups at a time", afxdp.KernelGroups)
	case s.Receivers >= afxdp.KernelPorts:
		return fmt.Sprintf("the kernel carries groups behind the first %d ports, and the source has one of them", afxdp.KernelPorts)
	}
	return oneWorker(s)
}

// startPackets may go through AF_XDP in any case: those before the group is armed, and before the
// fan of its ports is ready. Further groups behind the same ports find the fan ready, but each is
// armed only when its receivers have answered, and they answer every 64th packet.
const (
	startPackets     = 256
	moreStartPackets = 96
)

// repairPackets is startPackets with repair. On a busy machine a receiver may answer so late that
// it is probed, and then the group must be plain again for a while.
const repairPackets = 4096

// mostlyCarried returns an error if the kernel did not carry most packets: the figure would be that
// of AF_XDP.
func mostlyCarried(s *dataplane.Switch, start uint64) error {
	var forwarded, carried uint64
	for _, c := range s.Counters() {
		switch c.Name {
		case "forwarded":
			forwarded = c.Value
		case "fan-out-carried":
			carried = c.Value
		}
	}
	if carried+start < forwarded/10*9 {
		return fmt.Errorf("the kernel carried only %d of %d packets", carried, forwarded)
	}
	return nil
}

// group returns group g as control would make it from a group file and the kernel's next hops.
func group(w *workload.Workload, g int) *mft.Group {
	m := &mft.Group{
		Name: "bench", IP: workload.GroupIP(g), QPN: workload.GroupQPN, PathMTU: pathMTU(w.Payload),
		Memory: mft.MustMemory(workload.Memory),
		Source: mft.Source{Leg: leg(w, g, 0), FirstPSN: workload.SourcePSN(g)},
	}
	m.Source.Dst, m.Source.DestQPN = workload.SourceIP, workload.SourceQPN(g)
	for r := range w.Receivers {
		p := mft.Path{
			Leg: leg(w, g, 1+r), RemoteQPN: workload.GroupQPN, FirstPSN: workload.ReceiverPSN(g, r),
			Regions: m.Memory.At(func(mft.VirtualRegion) mft.Region { return workload.Region(g, r) }),
		}
		p.Dst, p.DestQPN = workload.ReceiverIP(r), workload.ReceiverQPN(g, r)
		m.Paths = append(m.Paths, p)
	}
	return m
}

func leg(w *workload.Workload, g, port int) mft.Leg {
	l := mft.Leg{Port: mft.PortID(port), Src: workload.GroupIP(g)}
	l.L2Bytes = uint8(copy(l.L2[:], roce.AppendEthernet(nil, w.HostMACs[port], w.PortMACs[port], 0x0800)))
	return l
}

// pathMTU returns the smallest path MTU for packets of this many bytes.
func pathMTU(payload int) int {
	mtu := 256
	for mtu < payload {
		mtu *= 2
	}
	return mtu
}
