package nexthop

import (
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/rocast/rocast/dataplane"
)

// throughBond chooses the lower device by which frames to the host leave a bond: of those by which
// the bond sends, which are ports of rocast, one by the address of the host. In mode active-backup
// that is the active one. Frames of the host may come by each lower device, because the other end
// of the bond chooses for itself: so they are all uplinks.
func (w *walk) throughBond(first, bond link) (below int, doubt string, err error) {
	if u := bond.upper(nil); !u.IsBond() {
		return 0, "", w.elsewhere(first, bond)
	}
	lowers, err := w.kernel.lowers(bond.index)
	if err != nil {
		return 0, "", fmt.Errorf("look up the lower devices of %s: %w", bond.name, err)
	}
	var ports, carrying []link
	var strangers []string
	for _, l := range lowers {
		w.about(subject{link: l.index})
		switch {
		case w.ports[l.index]:
			ports = append(ports, l)
			w.bonded = append(w.bonded, l.index)
			if l.carries {
				carrying = append(carrying, l)
			}
		case l.carries:
			strangers = append(strangers, l.name)
		}
	}
	if len(strangers) > 0 {
		doubt = fmt.Sprintf("frames may take %s of %s, which is not a port of rocast; see in rocast port ls whether it could be opened, or "+
			"add it to ports: in the config", strings.Join(strangers, ", "), bond.name)
	}
	broken := bond.broken()
	switch {
	case len(carrying) > 0 && broken == "":
		return carrying[int(crc32.ChecksumIEEE(w.to.AsSlice()))%len(carrying)].index, doubt, nil
	case len(strangers) > 0 || len(lowers) == 0:
		return 0, "", w.elsewhere(first, bond)
	case len(ports) > 0:
		if broken == "" {
			broken = fmt.Sprintf("no lower device of %s is up", bond.name)
		}
		w.Down = true
		return ports[0].index, broken, nil
	}
	return 0, "", w.elsewhere(first, lowers[0])
}

// upper describes the link as an interface above others.
func (l link) upper(below []link) *dataplane.Upper {
	u := &dataplane.Upper{Name: l.name, Kind: l.kind, Mode: l.mode}
	for _, b := range below {
		u.Below = append(u.Below, b.name)
	}
	return u
}
