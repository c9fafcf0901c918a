//go:build softroce

package softroce

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/testlab/certs"
	"github.com/rocast/rocast/internal/testlab/lossy"
	"github.com/rocast/rocast/internal/testlab/netns"
)

// linkLoss is how many of a million RoCE packets a lossy link between boxes loses, each way.
const linkLoss = 5000

// neighbours are boxes in namespaces, joined to a tree by links. All guests stay in one network.
// The boxes reach each other's API there.
type neighbours struct {
	t     *testing.T
	bin   string
	ca    *certs.Authority
	boxes []*neighbour
}

// neighbour is one box.
type neighbour struct {
	*Namespace
	name, addr string
	guests     []int // numbers
	links      []string
	next       []*neighbour // by links
	more       string       // lines of its config
}

func openBox(t *testing.T) *Namespace {
	t.Helper()
	box, err := openNamespace()
	must(t, err)
	t.Cleanup(func() { must(t, box.close()) })
	return box
}

// add adds a box with some guests. The first box is that of the lab: the other guests' ports are
// moved from there.
func (n *neighbours) add(box *Namespace, name, addr string, guests ...int) *neighbour {
	n.t.Helper()
	b := &neighbour{Namespace: box, name: name, addr: addr, guests: guests}
	if n.boxes = append(n.boxes, b); len(n.boxes) == 1 {
		return b
	}
	ip(n.t, b.NS, "link add "+bridgeName+" type bridge mcast_snooping 0")
	ip(n.t, b.NS, "link set "+bridgeName+" up")
	must(n.t, b.NS.Sysctl("net.ipv6.conf."+bridgeName+".disable_ipv6", "0"))
	ip(n.t, b.NS, "address add "+addr+"/24 dev "+bridgeName)
	ip(n.t, b.NS, "address add fd77::"+addr[strings.LastIndexByte(addr, '.')+1:]+"/64 dev "+bridgeName+" nodad")
	for _, guest := range guests {
		ip(n.t, n.boxes[0].NS, fmt.Sprintf("link set %s netns %s", PortName(guest), b.NS.Name()))
		ip(n.t, b.NS, fmt.Sprintf("link set %s master %s up", PortName(guest), bridgeName))
	}
	return b
}

// stick adds a box with one port, behind which all guests are: the box of the lab is only their
// switch. It returns the switch's end of the box's link too.
func (n *neighbours) stick(at *Namespace, name, addr string, mtu int) (*neighbour, netns.Link) {
	t := n.t
	t.Helper()
	b := &neighbour{Namespace: openBox(t), name: name, addr: addr, links: []string{"eth1"}}
	port, end := netns.Veth(t, b.NS, "eth1", at.NS, name, netns.VethOptions{MTU: mtu})
	must(t, port.AddAddress(addr+"/24"))
	ip(t, at.NS, "link set "+name+" master "+bridgeName)
	_, err := at.NS.Exec("ethtool", "-K", name, "gro", "on") // so that it takes what XDP redirects to it
	must(t, err)
	n.boxes = append(n.boxes, b)
	return b, end
}

func ip(t *testing.T, ns *netns.NS, words string) {
	t.Helper()
	_, err := ns.Exec("ip", strings.Fields(words)...)
	must(t, err)
}

// join joins two boxes by a link, which may lose packets. A bridge stands between them.
func (n *neighbours) join(upper, lower *neighbour, loses bool) {
	t := n.t
	t.Helper()
	between := netns.New(t)
	ip(t, between, "link add br0 type bridge")
	ip(t, between, "link set br0 up")
	var ends []netns.Link
	for i, b := range []*neighbour{upper, lower} {
		other := []*neighbour{lower, upper}[i]
		port := fmt.Sprintf("rclink%d", len(b.links))
		b.links, b.next = append(b.links, port), append(b.next, other)
		_, end := netns.Veth(t, b.NS, port, between, b.name, netns.VethOptions{MTU: MTU1024})
		ip(t, b.NS, "link set "+port+" master "+bridgeName)
		ip(t, between, "link set "+end.Name+" master br0")
		// The end takes what XDP redirects to it.
		_, err := between.Exec("ethtool", "-K", end.Name, "gro", "on")
		must(t, err)
		ends = append(ends, end)
	}
	perMillion := 0
	if loses {
		perMillion = linkLoss
	}
	wire, err := lossy.Attach(ends[0], 1, perMillion)
	must(t, err)
	t.Cleanup(func() {
		down, up, err := wire.Passed()
		downLost, upLost, lostErr := wire.Lost()
		t.Logf("the link from %s to %s carried %d packets down and lost %d, %d up and lost %d (%v, %v)",
			upper.name, lower.name, down, downLost, up, upLost, err, lostErr)
		must(t, wire.Close())
	})
}

// behind returns the networks of the guests that b reaches through next.
func (b *neighbour) behind(next *neighbour) (networks []string) {
	for _, guest := range next.guests {
		networks = append(networks, fmt.Sprintf("%v/32", guestAddr(guest)))
	}
	for _, further := range next.next {
		if further != b {
			networks = append(networks, next.behind(further)...)
		}
	}
	return networks
}

// start starts the daemon of a box. All boxes have been joined.
func (n *neighbours) start(b *neighbour) *rocast {
	t := n.t
	t.Helper()
	ctx := testContext(t, time.Minute)
	if n.ca == nil {
		var err error
		n.ca, err = certs.NewAuthority(t.TempDir())
		must(t, err)
	}
	site := inNamespaceOf{b.Namespace, n.bin, t.TempDir(), b.addr}
	cert, key, err := n.ca.Issue(filepath.Dir(site.path("x")), time.Now().Add(certs.Lifetime), b.name)
	must(t, err)
	var config strings.Builder
	ports := strings.Join(b.links, ", ")
	for _, guest := range b.guests {
		ports += ", " + PortName(guest)
	}
	const port = 7471
	fmt.Fprintf(&config, "engine: %s\nports: [%s]\nsocket: %s\nstateDir: %s\napi: {listen: %s:%d, cert: %s, key: %s, ca: %s}\n%s",
		*engine, ports, site.path("socket"), site.path("state"), b.addr, port, cert, key, n.ca.Path, b.more)
	for i, next := range b.next {
		if i == 0 {
			config.WriteString("neighbours:\n")
		}
		fmt.Fprintf(&config, "  - {name: %s, address: %s, url: \"https://%s:%d\", behind: [%s]}\n",
			next.name, next.addr, next.addr, port, strings.Join(b.behind(next), ", "))
	}
	must(t, os.WriteFile(site.path("rocastd.yaml"), []byte(config.String()), 0o600))
	r := &rocast{site: site}
	must(t, r.Start(ctx))
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// playOnLinks plays stories twice: on links without loss, and on links that lose packets. With
// -short it plays few stories, on the links that lose packets.
func playOnLinks(t *testing.T, stories []story, open func(t *testing.T, kernel, bin string, loses bool) *stage) {
	bin := buildRocast(t, testContext(t, 5*time.Minute))
	var table strings.Builder
	defer func() { t.Log("\n" + table.String()) }()
	for _, loses := range []bool{false, true} {
		if testing.Short() && !loses {
			continue
		}
		links := fmt.Sprintf("lossy links %t", loses)
		t.Run(links, func(t *testing.T) {
			s := open(t, "6.12", bin, loses)
			for _, story := range stories {
				if testing.Short() && !story.short {
					continue
				}
				fmt.Fprintln(&table, s.play(t, links, story))
			}
		})
	}
}
