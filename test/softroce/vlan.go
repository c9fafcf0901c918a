package softroce

import (
	"fmt"
	"strings"
)

// Tag is the VLAN tag of a guest's frames.
type Tag struct {
	VID int // 0: frames have no tag
	PCP int // of all frames that the guest sends
}

// tagOf returns the tag of a guest.
func tagOf(tags []Tag, guest int) Tag {
	if guest > len(tags) {
		return Tag{}
	}
	return tags[guest-1]
}

// device returns the interface of the guest that has its addresses, and the command that makes it.
func (g Tag) device() (name, command string) {
	if g.VID == 0 {
		return "eth0", ""
	}
	name = fmt.Sprintf("eth0.%d", g.VID)
	return name, fmt.Sprintf("ip link add link eth0 name %s up type vlan id %d egress-qos-map 0:%d\n", name, g.VID, g.PCP)
}

// vlanDevices makes the VLAN devices of a box above its bridge, by which it reaches the guests that
// have tags.
func vlanDevices(bridge string, tags []Tag) string {
	var s strings.Builder
	made := map[int]bool{0: true}
	for i, tag := range tags {
		if !made[tag.VID] {
			made[tag.VID] = true
			fmt.Fprintf(&s, "ip link add link %[1]s name %[1]s.%[2]d up type vlan id %[2]d\nip address add %[3]s/32 dev %[1]s.%[2]d\n",
				bridge, tag.VID, boxAddr)
		}
		if tag.VID != 0 {
			for _, route := range []string{fmt.Sprintf("%v/32", guestAddr(i+1)), fmt.Sprintf("%v/128", guestAddr6(i+1))} {
				fmt.Fprintf(&s, "ip route add %s dev %s.%d\n", route, bridge, tag.VID)
			}
		}
	}
	return s.String()
}
