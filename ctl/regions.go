package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/netip"
	"slices"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// ChangeRegions adds regions of memory to a running group and removes regions from it. All boxes
// have the change when ChangeRegions returns. If ChangeRegions returns an error, which is an
// *api.Error, nothing has changed.
func (c *Controller) ChangeRegions(ctx context.Context, name string, request []byte) (api.Group, error) {
	var change api.RegionChange
	decoder := json.NewDecoder(bytes.NewReader(request))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&change); err != nil {
		// The decoder's error may quote an R_Key.
		return api.Group{}, api.Errorf(api.BadRequest, "the change of regions cannot be read; write add and remove, with numbers like 0x10000 in quotes")
	}
	running, from, err := c.running(ctx, name)
	if err != nil {
		return api.Group{}, groups.APIError(err)
	}
	if running.Table {
		return c.changeTable(ctx, name, &change)
	}
	next, err := withRegions(running, &change)
	if err != nil {
		return api.Group{}, err
	}
	text := next.Text()
	if len(text) > api.MaxGroupFileBytes {
		return api.Group{}, api.Errorf(api.BadRequest, "the group file would have %d bytes then, and may have %d; create the group with memory: table to have more regions",
			len(text), api.MaxGroupFileBytes)
	}
	g, err := c.update(ctx, name, text, from)
	if e := (*api.Error)(nil); errors.As(err, &e) && e.Line > 0 {
		err = api.Errorf(api.BadRequest, "%s", e.Message) // the client sent no file, so a line says nothing to it
	}
	return g, err
}

// basis is the version of a group from which a change was made.
type basis struct {
	file     *groupfile.File // nil: the group is in etcd
	revision int64           // in etcd
}

// running returns the file of a running group, and its version.
func (c *Controller) running(ctx context.Context, name string) (*groupfile.File, *basis, error) {
	if c.shared != nil && !c.isHelpers(name) {
		f, revision, err := c.shared.Running(ctx, name)
		return f, &basis{revision: revision}, err
	}
	g := c.groups.Seen(name)
	switch {
	case g == nil:
		return nil, nil, groups.NoGroup(name)
	case g.Branch != nil:
		return nil, nil, groups.BelongsTo(g)
	case g.Wanted == nil:
		return nil, nil, api.Errorf(api.BadRequest, "group %s does not run (%s)", name, g.Problem)
	}
	return g.Wanted, &basis{file: g.Wanted}, nil
}

// isStill refuses a change that was made from another version than is.
func (b *basis) isStill(name string, is *groupfile.File) error {
	if b != nil && b.file != is {
		return groups.ChangedMeanwhile(name)
	}
	return nil
}

// inEtcd returns the revision in etcd from which a change was made; 0: any.
func (b *basis) inEtcd(name string) (int64, error) {
	switch {
	case b == nil:
		return 0, nil
	case b.file != nil: // the caller has seen a group of this box alone, which has ended since
		return 0, groups.ChangedMeanwhile(name)
	default:
		return b.revision, nil
	}
}

// withRegions returns the file with another memory.
func withRegions(f *groupfile.File, change *api.RegionChange) (*groupfile.File, error) {
	if f.Memory == nil {
		return nil, api.Errorf(api.BadRequest, "group %s has no memory, so its copies keep the addresses and keys of the source; create it with "+
			"memory: [] to add regions later", f.Name)
	}
	next := *f
	next.Memory, next.Receivers = slices.Clone(f.Memory), slices.Clone(f.Receivers)
	for i := range next.Receivers {
		next.Receivers[i].Regions = slices.Clone(next.Receivers[i].Regions)
	}
	for _, r := range change.Remove {
		at := slices.IndexFunc(next.Memory, func(v mft.VirtualRegion) bool { return v.VA == uint64(r.VA) && uint64(v.RKey) == uint64(r.RKey) })
		if at < 0 {
			return nil, noRegion(f.Name, r)
		}
		next.Memory = slices.Delete(next.Memory, at, at+1)
		for i := range next.Receivers {
			m := &next.Receivers[i]
			m.Regions = slices.Delete(m.Regions, at, at+1)
		}
	}
	for i := range change.Add {
		if err := addRegion(&next, &change.Add[i]); err != nil {
			return nil, err
		}
	}
	return &next, nil
}

func noRegion(group string, r api.RegionStart) error {
	return api.Errorf(api.NotFound, "group %s has no region that begins at VA %v under that R_Key; rocast region ls %s lists them",
		group, r.VA, group)
}

// addRegion appends a region to the memory of a file, and to the regions of each receiver.
func addRegion(f *groupfile.File, r *api.NewRegion) error {
	kept, err := whereKept(f, r)
	if err != nil {
		return err
	}
	for i, p := range kept {
		m := &f.Receivers[i]
		m.Regions = append(m.Regions, p)
	}
	f.Memory = append(f.Memory, mft.VirtualRegion{VA: uint64(r.VA), Length: r.Length, RKey: uint32(r.RKey)})
	return nil
}

// whereKept returns where each receiver of a file keeps a new region.
func whereKept(f *groupfile.File, r *api.NewRegion) ([]mft.Region, error) {
	if r.Length == 0 {
		return nil, api.Errorf(api.BadRequest, "the region at VA %v has length 0; write its length in bytes", r.VA)
	}
	if r.RKey > math.MaxUint32 {
		return nil, api.Errorf(api.BadRequest, "the R_Key of the region at VA %v has more than 32 bits", r.VA)
	}
	kept := make([]mft.Region, len(f.Receivers))
	for i := range r.At {
		p := &r.At[i]
		at, err := receiverAt(f, p)
		switch {
		case err != nil:
			return nil, err
		case kept[at].Length != 0:
			return nil, api.Errorf(api.BadRequest, "receiver %s has two places for the region at VA %v; write one", p.IP, r.VA)
		case p.RKey > math.MaxUint32:
			return nil, api.Errorf(api.BadRequest, "the R_Key of receiver %s for the region at VA %v has more than 32 bits", p.IP, r.VA)
		}
		kept[at] = mft.Region{VA: uint64(p.VA), Length: r.Length, RKey: uint32(p.RKey)}
	}
	if at := slices.IndexFunc(kept, func(p mft.Region) bool { return p.Length == 0 }); at >= 0 {
		return nil, api.Errorf(api.BadRequest, "receiver %v has no place for the region at VA %v; add where it keeps the region",
			f.Receivers[at].IP, r.VA)
	}
	return kept, nil
}

// receiverAt finds the receiver that p names.
func receiverAt(f *groupfile.File, p *api.RegionAt) (int, error) {
	ip, err := netip.ParseAddr(p.IP)
	if err != nil {
		return 0, api.Errorf(api.BadRequest, "%q is no address; write that of a receiver, such as 10.77.0.2", p.IP)
	}
	is := func(m groupfile.Member) bool {
		return m.IP == ip && (p.RemoteQPN == 0 || m.RemoteQPN == roce.QPN(p.RemoteQPN))
	}
	at := slices.IndexFunc(f.Receivers, is)
	switch {
	case at < 0:
		return 0, api.Errorf(api.NotFound, "%v is no receiver of group %s; rocast group show %s lists them", ip, f.Name, f.Name)
	case slices.ContainsFunc(f.Receivers[at+1:], is):
		return 0, api.Errorf(api.BadRequest, "%v has several receivers of group %s; add the remoteQPN of the one that is meant", ip, f.Name)
	}
	return at, nil
}
