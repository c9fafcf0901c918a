package frames

import (
	"context"
	"errors"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// readCaptureEvery is how often what was captured is read. A worker that handles a million frames
// in a second needs longer to fill its ring (dataplane/tap.go).
const readCaptureEvery = 10 * time.Millisecond

// groupRemoved is why a capture has ended.
const groupRemoved = "the group was removed"

// Capture calls tell with each line of a capture (api.CaptureLine), until ctx is done or the group
// is removed. The error is that of tell, or it says why the capture could not begin; then tell was
// not called.
func (f *Frames) Capture(ctx context.Context, q api.CaptureQuery, send func(api.CaptureLine) error) error {
	config, err := f.captureConfig(q)
	if err != nil {
		return err
	}
	running, err := f.data.Capture(config)
	switch {
	case errors.Is(err, dataplane.ErrCaptures):
		return api.Errorf(api.Unavailable, "%v", err)
	case err != nil: // it was removed a moment ago
		return f.noGroup(q.Group)
	}
	defer running.Close()
	v := captureView{running: running, send: send, ask: f.data.Ports}
	return v.run(ctx)
}

func (f *Frames) captureConfig(q api.CaptureQuery) (config dataplane.CaptureConfig, err error) {
	kinds := map[string]dataplane.CaptureKind{
		api.CaptureData: dataplane.CaptureData, api.CaptureFeedback: dataplane.CaptureFeedback, api.CaptureDrop: dataplane.CaptureDrop,
	}
	for _, name := range q.Kinds {
		kind, ok := kinds[name]
		if !ok {
			return config, api.Errorf(api.BadRequest, "there is no kind of frames %q; write %s, %s or %s", name,
				api.CaptureData, api.CaptureFeedback, api.CaptureDrop)
		}
		config.Kinds |= kind
	}
	if len(q.Kinds) == 0 {
		config.Kinds = dataplane.CaptureAll
	}
	config.Sample, config.Snap = q.Sample, q.Snap
	if config.Snap == 0 {
		config.Snap = api.SnapDefault
	}
	switch {
	case config.Sample < 0 || config.Sample > api.SampleMost:
		return config, api.Errorf(api.BadRequest, "sample is %d; write a number up to %d", config.Sample, api.SampleMost)
	case config.Snap < api.SnapDefault || config.Snap > api.SnapMost:
		return config, api.Errorf(api.BadRequest, "snap is %d; write a number of bytes from %d to %d", config.Snap, api.SnapDefault, api.SnapMost)
	case q.Group == "":
		return config, nil
	}
	config.One = true
	config.Group, err = f.group(q.Group)
	return config, err
}

// captureView turns what the data path has captured into lines.
type captureView struct {
	running *dataplane.Capture
	send    func(api.CaptureLine) error
	ask     func() []dataplane.PortInfo
	ports   map[mft.PortID]string
	asked   time.Time // when ports was made
	now     api.CaptureProgress
	told    api.CaptureProgress
}

// portsChange is how long the names of ports are taken for granted. All workers have to answer the
// question for them.
const portsChange = time.Second

func (v *captureView) port(id mft.PortID) string {
	if name, known := v.ports[id]; id == mft.NoPort || known && time.Since(v.asked) < portsChange {
		return name
	}
	v.ports, v.asked = map[mft.PortID]string{}, time.Now()
	for _, p := range v.ask() {
		v.ports[p.ID] = p.Name
	}
	return v.ports[id]
}

func (v *captureView) run(ctx context.Context) error {
	again := time.NewTicker(readCaptureEvery)
	defer again.Stop()
	err := v.progress()
	for err == nil && v.now.Ended == "" {
		select {
		case <-again.C:
			if v.running.Gone() {
				v.now.Ended = groupRemoved
			}
		case <-ctx.Done():
			v.now.Ended = context.Cause(ctx).Error()
		}
		if v.now.Ended != "" {
			v.running.Close() // what comes from now on is not captured
		}
		if err = v.frames(); err == nil && v.now != v.told {
			err = v.progress()
		}
	}
	return err
}

func (v *captureView) progress() error {
	v.told = v.now
	return v.send(api.CaptureLine{Progress: &v.told})
}

// frames tells of all frames since the last call.
func (v *captureView) frames() (err error) {
	v.running.Read(func(f *dataplane.Captured) {
		if err != nil {
			return
		}
		v.now.Captured++
		shown := describeFrame(f)
		shown.Port = v.port(f.Port)
		err = v.send(api.CaptureLine{Frame: &shown})
	})
	v.now.Lost = v.running.Lost()
	return err
}

// describeFrame describes all of a frame but its port.
func describeFrame(f *dataplane.Captured) api.CapturedFrame {
	shown := api.CapturedFrame{
		Time: f.At, Event: f.Event, Direction: api.Out, Verdict: f.Verdict(), Reason: f.Why(), Engine: api.CarrierAFXDP,
		Length: f.Length, Bytes: f.Bytes,
	}
	if f.Fate == dataplane.Received {
		shown.Direction = api.In
	}
	if g := f.Table.Group(f.Group); g != nil {
		shown.Group = g.Name
	}
	head := f.Bytes
	var v roce.View
	if err := v.Decode(head, f.Length); err != nil && !errors.Is(err, roce.ErrOpcode) {
		return shown
	}
	shown.Opcode, shown.QPN, shown.PSN = v.Opcode.String(), uint32(v.DestQPN(head)), uint32(v.PSN(head))
	switch {
	case f.To != nil: // the copy was never written
		shown.Member, shown.QPN = f.To.Dst.String(), uint32(f.To.DestQPN)
	case shown.Direction == api.In:
		shown.Member = v.SrcIP(head).String()
	default:
		shown.Member = v.DstIP(head).String()
	}
	if v.Opcode.Known() {
		icrc := api.Hex(f.ICRC)
		shown.ICRC = &icrc
	}
	if v.Opcode.Headers().Has(roce.HasAETH) {
		shown.Syndrome = v.AETH(head).Syndrome.String()
	}
	return shown
}
