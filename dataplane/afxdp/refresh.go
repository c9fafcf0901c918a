package afxdp

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/bpf"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/xsk"
)

// retryAfter is the time between two attempts to open an interface that has not changed. On many
// NICs each attempt interrupts the link.
const retryAfter = 10 * time.Second

// failure is the state of an interface when it could not be opened, and the time of the next
// attempt.
type failure struct {
	as    seen
	again time.Time
}

// Refresh looks at the interfaces again. It closes ports whose interface is gone, opens ports whose
// interface exists, and opens ports again whose interface was replaced or has other queues. It
// returns the ports as they are now, without their counters, and warnings for the operator; each
// warning is returned once.
//
// Control calls it whenever a link changed, and once a second, because the kernel does not report
// when the number of queues changes. Like Open it works in the calling thread's network namespace.
func (s *Switch) Refresh() (ports []dataplane.PortInfo, warnings []dataplane.Warning) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, errs := make([]seen, len(s.interfaces)), make([]error, len(s.interfaces))
	for i, f := range s.interfaces {
		if f.free {
			continue
		}
		now[i], errs[i] = look(f.info.Name)
		switch {
		case errors.Is(errs[i], errGone):
			s.shut(f, dataplane.PortGone, errs[i])
		case errors.Is(errs[i], ErrConfig) && f.xdp != nil: // another interface has the name now
			s.shut(f, dataplane.PortFailed, errs[i])
		case errs[i] == nil && f.xdp != nil && f.outdated(now[i]):
			s.shut(f, dataplane.PortFailed, nil)
		case errs[i] == nil && f.xdp != nil && s.attach == bpf.ModeAuto && s.noRoom(f.xdp):
			s.fallBack(f, now[i], "its driver leaves no room for metadata in front of a frame")
		case errs[i] == nil && f.xdp != nil:
			if why := s.isDeaf(f); why != "" {
				s.openGeneric(f, now[i], why)
			}
		}
	}
	// Ports are closed before others are opened: a socket is bound by way of another socket of its
	// UMEM, and the kernel refuses this if that socket has lost its device.
	opened := false
	for i, f := range s.interfaces {
		switch {
		case f.free:
			continue
		case errs[i] != nil && f.xdp == nil && !errors.Is(errs[i], errGone):
			f.info.State, f.info.Reason = dataplane.PortFailed, errs[i].Error()
		case errs[i] == nil && f.xdp == nil && f.isDue(now[i]):
			opened = true
			s.tryOpen(f, now[i])
		}
		if errs[i] == nil {
			f.note(now[i])
		}
		if f.xdp != nil && errs[i] == nil {
			f.info.State, f.info.Reason = linkState(now[i]), ""
		}
		ports = append(ports, f.info)
	}
	s.publishDevices()
	s.watchVerdicts(opened)
	warnings, s.warnings = s.warnings, nil
	return ports, warnings
}

func linkState(now seen) dataplane.PortState {
	if now.up {
		return dataplane.PortUp
	}
	return dataplane.PortDown
}

func (f *iface) isDue(now seen) bool {
	return f.failure.as != now || !time.Now().Before(f.failure.again)
}

func (s *Switch) tryOpen(f *iface, now seen) {
	err := s.openPort(f, now)
	switch {
	case err == nil:
		f.failure = failure{}
	case isGone(f.info.Name):
		f.info.State, f.info.Reason = dataplane.PortGone, errGone.Error()
	default:
		f.info.State, f.info.Reason = dataplane.PortFailed, err.Error()
		f.failure = failure{as: now, again: time.Now().Add(retryAfter)}
	}
}

func isGone(name string) bool {
	_, err := look(name)
	return errors.Is(err, errGone)
}

// openPort opens an interface under its PortID, while the workers move frames; they only fill the
// rings and begin to use the sockets. After an error nothing of the interface is open.
func (s *Switch) openPort(f *iface, now seen) (err error) {
	if err := now.check(f.info.Name, len(s.workers)); err != nil {
		return err
	}
	config := s.socket
	if config.FillDescs, err = f.fillChunks(now.queues.rx, len(s.workers)); err != nil {
		return err
	}
	attach := s.attach
	if f.generic == now.ifIndex {
		attach, f.info.Fallback = bpf.ModeGeneric, f.fallback
	}
	if f.xdp, err = s.classifier.OpenPort(now.ifIndex, uint32(f.info.ID), attach); err != nil {
		f.xdp = nil
		return err
	}
	f.sockets = make([][]*xsk.Socket, len(s.workers))
	f.note(now)
	err = s.openSockets(f, now, config)
	if errors.Is(err, unix.EINVAL) && s.unprobed != nil && s.socket.MultiBuffer && len(f.sockets[0]) == 0 {
		// No probe ran, for want of CAP_SYS_ADMIN. The kernel may not know the flag.
		s.socket.MultiBuffer, config.MultiBuffer = false, false
		s.singleBuffer = fmt.Sprintf("this kernel refuses multi-buffer sockets (rocast features; %v)", err)
		err = s.openSockets(f, now, config)
	}
	if err != nil {
		return errors.Join(err, s.release(f))
	}
	f.as = now
	f.stack, f.hearing = countStackFrames(now.ifIndex), hearing{}
	f.info.State, f.info.Reason = linkState(now), ""
	f.info.Opened++
	f.obtained(f.sockets[0][0])
	if o := f.sockets[0][0].Obtained(); o.Mode != xsk.ModeZeroCopy && o.BacklogDescs < queueDescs {
		s.warnOnce(dataplane.Warning{
			Text: "the kernel keeps too few unsent frames for the port and loses the rest (tx-stalled), because " +
				"rocastd lacks CAP_NET_ADMIN outside of its user namespace; give it that capability, or raise " +
				"net.core.wmem_max",
			Port: f.info.Name, Detail: fmt.Sprintf("%d frames instead of %d", o.BacklogDescs, queueDescs),
		})
	}
	if now.mtu+frameOverhead > xsk.FrameBytes && !s.socket.MultiBuffer {
		s.warnOnce(dataplane.Warning{
			Text: "the port's MTU allows longer frames than rocastd carries: each frame has one buffer, which is " +
				"enough for path MTU 2048",
			Port: f.info.Name, Detail: s.singleBuffer,
		})
	}
	return nil
}

func (s *Switch) openSockets(f *iface, now seen, config xsk.SocketConfig) error {
	if f.xdp.Mode() == bpf.ModeGeneric {
		config.Mode = xsk.ModeGeneric
	}
	for q := range now.queues.rx {
		i := q % len(s.workers)
		config.Owner = func(task func()) { s.Do(i, task) }
		socket, err := s.openSocket(s.workers[i].umem, now.ifIndex, uint32(q), config)
		if err != nil {
			return err
		}
		f.sockets[i] = append(f.sockets[i], socket)
	}
	s.deal(f)
	// The workers receive already, so the fill rings do not run empty.
	for q := range now.queues.rx {
		socket := f.sockets[q%len(s.workers)][q/len(s.workers)]
		if err := f.xdp.SetSocket(uint32(q), socket.FD()); err != nil {
			return err
		}
	}
	return nil
}

// deal gives each worker its share of the interface's sockets.
func (s *Switch) deal(f *iface) {
	for i, w := range s.workers {
		s.Do(i, func() { w.use(f.info.ID, f.sockets[i]) })
	}
}

// shut closes a port and records why.
func (s *Switch) shut(f *iface, state dataplane.PortState, why error) {
	if err := s.release(f); err != nil {
		s.warnings = append(s.warnings, dataplane.Warning{
			Text: "the port could not be closed completely", Port: f.info.Name, Detail: err.Error(),
		})
	}
	f.info.State, f.info.Reason = state, ""
	if why != nil {
		f.info.Reason = why.Error()
	}
	f.info.IfIndex, f.info.MTU, f.info.Queues, f.info.MAC, f.info.TakesTags = 0, 0, 0, [6]byte{}, false
	f.failure = failure{}
}

// release takes the sockets from the workers and closes everything. The classifier is detached
// first, so that group frames go to the kernel and not to sockets from which no worker receives.
func (s *Switch) release(f *iface) error {
	if f.xdp == nil {
		return nil
	}
	errs := []error{f.xdp.Close()}
	sockets := f.sockets
	f.sockets = make([][]*xsk.Socket, len(s.workers))
	s.deal(f)
	for _, socket := range slices.Concat(sockets...) {
		f.remember(socket)
		errs = append(errs, socket.Close())
	}
	f.stack.close()
	f.xdp, f.sockets, f.stack = nil, nil, nil
	f.info.Attach, f.info.Mode, f.info.MultiBuffer, f.info.Fallback = "", "", false, ""
	return errors.Join(errs...)
}

// remember keeps the counters of a socket, because a port's counters continue without its
// interface.
func (f *iface) remember(s *xsk.Socket) {
	if st, err := s.Stats(); err == nil {
		f.past.Add(st)
	}
}

// watchVerdicts warns of group frames that went to the kernel for a lasting reason. While a port is
// being opened some go to the kernel without harm.
func (s *Switch) watchVerdicts(opened bool) {
	is, err := s.classifier.Counters()
	if err != nil {
		return
	}
	was := s.verdicts
	s.verdicts = is
	if is[bpf.PassNoSocket] > was[bpf.PassNoSocket] && !opened {
		s.warnOnce(dataplane.Warning{Text: "frames of groups go to the kernel, because they arrive on a queue " +
			"without a socket " +
			"(classifier-pass_no_socket); `ethtool -l PORT` shows a port's queues; `ethtool -L` or `ethtool -X` " +
			"restricts frames " +
			"to the queues that `rocast port ls` counts"})
	}
	if is[bpf.PassMetaFailed] > was[bpf.PassMetaFailed] && s.attach != bpf.ModeAuto {
		s.warnOnce(dataplane.Warning{Text: "frames of groups go to the kernel, because a port's driver leaves no " +
			"room for metadata " +
			"in front of them (classifier-pass_meta_failed); set `mode: generic` in the daemon's config"})
	}
}

func (s *Switch) warnOnce(w dataplane.Warning) {
	if !s.warned[w] {
		s.warned[w] = true
		s.warnings = append(s.warnings, w)
	}
}
