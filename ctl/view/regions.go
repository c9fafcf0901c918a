package view

import (
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/regions"
	"github.com/rocast/rocast/mft"
)

// TableRegions lists regions of a table: count of them at most, from the from-th on. An answer has
// fewer if the group has many receivers.
func TableRegions(table *regions.Table, f *groupfile.File, from, count int) api.Regions {
	const values = 1 << 16
	count = min(count, max(1, values/(1+len(f.Receivers))))
	page := api.Regions{Total: table.Len(), From: from, Regions: []api.GroupRegion{}}
	for r := range table.Part(f.ReceiverIDs(), from, count) {
		listed := api.GroupRegion{Region: region(mft.Region(r.VirtualRegion))}
		for i, at := range r.At {
			m := &f.Receivers[i]
			listed.At = append(listed.At, api.ReceiverRegion{IP: m.IP.String(), RemoteQPN: uint32(m.RemoteQPN), Region: region(at)})
		}
		page.Regions = append(page.Regions, listed)
	}
	return page
}

// FileRegions lists regions that the group file has: count of them at most, from the from-th on.
func FileRegions(v *api.Group, from, count int) api.Regions {
	page := api.Regions{Total: len(v.Memory), From: from, Regions: []api.GroupRegion{}}
	for i := from; i < len(v.Memory) && i < from+count; i++ {
		r := api.GroupRegion{Region: v.Memory[i]}
		for _, m := range v.Members {
			if i < len(m.Regions) {
				r.At = append(r.At, api.ReceiverRegion{IP: m.IP, RemoteQPN: m.RemoteQPN, Region: m.Regions[i]})
			}
		}
		page.Regions = append(page.Regions, r)
	}
	return page
}
