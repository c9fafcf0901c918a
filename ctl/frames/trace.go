package frames

import (
	"encoding/json"
	"slices"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/mft"
)

var classNames = map[dataplane.Class]string{
	dataplane.ToGroup: api.ToGroup, dataplane.ToKernel: api.ToKernel, dataplane.OwnSource: api.OwnSource,
}

// Trace says what would happen with the frame of a request (api.TraceRequest). Nothing changes.
func (f *Frames) Trace(request []byte) (api.Trace, error) {
	var r api.TraceRequest
	if err := json.Unmarshal(request, &r); err != nil {
		return api.Trace{}, api.Errorf(api.BadRequest, "the request for a trace cannot be read: %v", err)
	}
	ports := f.data.Ports()
	i := slices.IndexFunc(ports, func(p dataplane.PortInfo) bool { return p.Name == r.Port && r.Port != "" })
	if i < 0 {
		return api.Trace{}, api.Errorf(api.NotFound, "there is no port %q; rocast port ls lists the ports", r.Port)
	}
	names := map[mft.PortID]string{}
	for _, p := range ports {
		names[p.ID] = p.Name
	}
	t, err := f.data.Trace(ports[i].ID, r.Frame)
	if err != nil {
		return api.Trace{}, api.Errorf(api.TooLarge, "%v", err)
	}
	shown := api.Trace{Class: classNames[t.Class], Carried: t.Carried, GivesBack: t.GivesBack.String(), Frames: []api.CapturedFrame{}}
	for k := range t.Frames {
		frame := describeFrame(&t.Frames[k])
		frame.Port = names[t.Frames[k].Port]
		shown.Frames = append(shown.Frames, frame)
		shown.Group = shown.Frames[0].Group
	}
	for _, n := range t.Notes {
		shown.Notes = append(shown.Notes, api.TraceNote{Member: n.Receiver.String(), What: n.What.String()})
	}
	return shown, nil
}
