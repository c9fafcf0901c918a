package dataplane

import (
	"fmt"
	"slices"
	"strings"
)

// Upper is an interface above others.
type Upper struct {
	Name  string
	Kind  string   // as `ip -details link` names it: bridge, vlan, bond; "": it is above none
	Mode  string   // of a bond
	Below []string // the interfaces below it: the ports of a bridge, the lower devices of a bond
}

// followed are the modes of a bond in which each frame of a flow leaves by one lower device, which
// the kernel tells.
var followed = []string{"active-backup", "802.3ad", "balance-xor"}

// IsBond reports whether the interface stands for its lower devices, which are ports in its place.
func (u *Upper) IsBond() bool { return u.Kind == "bond" && slices.Contains(followed, u.Mode) }

// Refusal says why an interface cannot be a port because of its kind, and what mends that; "": it
// can be one. The kernel receives the frames of such a device at the device below it, and gives
// none of them to a socket that is bound to the upper device.
func (u *Upper) Refusal() string {
	below := ""
	if len(u.Below) > 0 {
		below = ": " + strings.Join(u.Below, ", ")
	}
	switch u.Kind {
	case "bridge":
		return "it is a bridge; name its ports instead" + below
	case "vlan":
		return "it is a VLAN device; name the interface below it instead" + below + " (rocast reads and writes the tags itself)"
	case "bond":
		if u.IsBond() {
			return ""
		}
		return fmt.Sprintf("it is a bond in mode %s, and rocast follows bonds in mode %s; set one of these modes (ip link set %s type "+
			"bond mode MODE, while the bond has no lower device)", u.Mode, strings.Join(followed, ", "), u.Name)
	case "team":
		return fmt.Sprintf("it is a team, and rocast does not know which of its ports is active; make it a bond in mode %s",
			strings.Join(followed, ", "))
	case "ipvlan", "ipvtap", "macvtap", "macsec", "vrf", "hsr":
		return fmt.Sprintf("it is a device of kind %s above another one; name an Ethernet interface of its own instead", u.Kind)
	}
	return ""
}
