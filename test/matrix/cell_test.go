package matrix

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/matrix"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/roce"
)

var (
	seed  = flag.Uint64("seed", 1, "chooses the cells, and what is drawn in each")
	cells = flag.Int("cells", 3, "how many cells to run")
	only  = flag.String("only", "", "only cells that have these `values`")
	line  = flag.String("cell", "", "run this cell alone, also if it is known to fail")
)

// knownFailures are values with which cells fail, and why. A run prints them, and fails if none of
// its cells with them fails any more: then the entry is deleted.
var knownFailures = []matrix.Rule{}

func TestMain(m *testing.M) {
	flag.Parse()
	boxes.Main(m)
}

// chosen returns the cells to run.
func chosen(t *testing.T) (list []matrix.Cell) {
	if *line != "" {
		c, err := matrix.Parse(*line)
		if err != nil {
			t.Fatal(err)
		}
		return []matrix.Cell{c}
	}
	if err := matrix.Check(*only); err != nil {
		t.Fatal(err)
	}
	for _, c := range matrix.Cover(matrix.Namespaces, *seed) {
		if c.Has(*only) && len(list) < *cells {
			list = append(list, c)
		}
	}
	return list
}

func TestCells(t *testing.T) {
	if testing.Short() {
		t.Skip("the daemons are programs of their own")
	}
	tried, failed := map[string]int{}, map[string]int{} // by known failure
	for _, c := range chosen(t) {
		if k := slices.IndexFunc(knownFailures, func(r matrix.Rule) bool { return c.Has(r.Of) }); k >= 0 && *line == "" {
			of := knownFailures[k].Of
			if tried[of]++; !holdsAlone(c) {
				failed[of]++
			}
			continue
		}
		if why, ok := c.Runs(matrix.Namespaces); !ok {
			t.Fatalf("%v is not run in namespaces: %s", c, why)
		}
		t.Run(c.String(), func(t *testing.T) {
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("replay: make matrix IN=namespaces SEED=%d CELL='%v'", *seed, c)
				}
			})
			r := &run{lab: newLab(t, c), c: c, random: rand.New(rand.NewPCG(*seed, 1))}
			r.play()
		})
	}
	for _, r := range knownFailures {
		t.Logf("known failure %s: %s: %d of %d cells", r.Of, r.Why, failed[r.Of], tried[r.Of])
		if tried[r.Of] > 0 && failed[r.Of] == 0 {
			t.Errorf("%s: it fails no longer; take it from knownFailures", r.Of)
		}
	}
}

// holdsAlone runs a cell in a process of its own, whose failure is not this one's, and reports
// whether it holds.
func holdsAlone(c matrix.Cell) bool {
	program, err := os.Executable()
	if err != nil {
		return false
	}
	return exec.Command(program, "-test.run", "^TestCells$", "-cell", c.String(), "-seed", strconv.FormatUint(*seed, 10)).Run() == nil
}

// run is one cell while it is played.
type run struct {
	*lab
	c         matrix.Cell
	random    *rand.Rand
	members   []*member // the source first
	spare     *member
	file      string
	rounds    int
	broken    bool // the group has failed, because a receiver refused a WRITE or no quorum can be had
	gone      map[*member]bool
	hostGroup client.HostGroup // what hosts know of the group that they have made
	abort     func()           // ends the transfer of the round
	again     bool             // the connection has ended, and the source connects again
}

func (r *run) play() {
	r.gone = map[*member]bool{}
	r.cast()
	r.create()
	r.share()
	var begin func()
	r.round(r.members[0], func() {
		begin = r.edgeDies()
		r.event()
	})
	if begin != nil { // else the round has ended before
		begin()
	}
	if !r.c.Is("source-switch", "none") && !r.broken {
		r.round(r.active(1), nil)
		if r.c.Is("event", "switch") {
			r.round(r.active(2), nil)
		}
	}
	if !r.broken {
		if first := r.members[0]; r.active(0) == first {
			r.round(first, nil)
		}
		r.stateIsRight()
	}
	r.nothingStays()
}

// cast makes the members: all hosts but the last one.
func (r *run) cast() {
	for i, h := range r.hosts {
		m := &member{
			Host: h, number: i, memory: make([]byte, memoryBytes), qpn: roce.QPN(100 + i),
			sends: roce.PSN(0xFFFF80 + i), expects: roce.PSN(1000 * (i + 1)),
		}
		r.members = append(r.members, m)
	}
	last := len(r.members) - 1
	r.spare, r.members = r.members[last], r.members[:last]
	for i, m := range append(slices.Clone(r.members), r.spare) {
		switch r.c.Get("addressing") {
		case "virtual-qpn":
			m.sees = r.hosts[min(1, len(r.hosts)-1)].IP
			if i > 0 {
				m.sees = r.hosts[0].IP
			}
		case "switch-ip":
			m.sees = r.ip
		default:
			m.sees = r.at[0].GroupIP()
		}
	}
}

// create makes the group, and connects the hosts to it.
func (r *run) create() {
	if r.c.Is("addressing", "hosts") {
		ctx, cancel := context.WithTimeout(r.t.Context(), patience)
		defer cancel()
		r.join(ctx, false, r.members...)
		r.ready()
		return
	}
	if r.c.Is("addressing", "cm") {
		r.openDialogs()
		for _, m := range append(slices.Clone(r.members), r.spare) {
			r.check(r.register(m))
		}
		r.connectCM(r.members[0])
		return
	}
	if r.c.Is("addressing", "perftest") {
		r.check(r.perftestUp())
		r.openTools()
		r.runPerftest(r.members[0])
		return
	}
	ip := r.members[0].sees
	r.file = text(r.c, ip, r.members)
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	for {
		_, err := r.boxes[0].Client().CreateGroup(ctx, []byte(r.file))
		if err == nil {
			break
		}
		// With etcd a box has four seconds to find the source, and the machine may be busy.
		if ctx.Err() != nil || !strings.Contains(err.Error(), "is attached to it") {
			r.t.Fatalf("%v\n%s", err, r.file)
		}
	}
	if r.c.Is("regions", "table") {
		_, err := r.boxes[0].Client().AddRegions(ctx, groupName, table(r.c, r.receivers()))
		r.check(err)
	}
	r.ready()
	for _, m := range append(slices.Clone(r.members), r.spare) {
		r.check(r.connect(ctx, m, groupQPN))
	}
}

// receivers are the members that are written to.
func (r *run) receivers() []*member {
	if r.c.Is("source-switch", "none") {
		return r.members[1:]
	}
	return r.members
}

func (r *run) ready() {
	r.t.Helper()
	r.eventually("the group is ready", func() bool {
		g, err := r.boxes[0].Client().Group(r.t.Context(), r.name)
		return err == nil && g.State == api.Ready
	})
}

func (r *run) connect(ctx context.Context, m *member, qpn uint32) error {
	if err := r.register(m); err != nil {
		return err
	}
	return r.open(ctx, m, qpn)
}

func (r *run) register(m *member) error {
	for _, p := range parts(r.c) {
		at := m.at(r.c, p)
		if err := m.RNIC.Register(rnic.Region{VA: at.VA, RKey: at.RKey, Access: rnic.RemoteWrite, Bytes: m.memory[p.from:p.to]}); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) open(ctx context.Context, m *member, qpn uint32) error {
	config := bed.QP(m.qpn, m.sends, mtuOf(r.c))
	config.Timeout = 15 // 134 ms, and no limit of retries
	var err error
	if m.qp, err = m.RNIC.NewQP(config); err != nil {
		return err
	}
	return m.qp.Connect(ctx, endpoint.Peer{IP: m.sees, QPN: roce.QPN(qpn), PSN: m.expects})
}

// target is where a source WRITEs a part.
func (r *run) target(p part) rnic.Remote {
	if r.c.Is("addressing", "cm") {
		return r.targetCM(p)
	}
	if r.c.Is("addressing", "perftest") {
		return r.targetPerftest()
	}
	if len(r.hostGroup.Memory) == 0 {
		return p.virtual()
	}
	at := r.hostGroup.Memory[p.number]
	return rnic.Remote{VA: uint64(at.VA), RKey: uint32(*at.RKey)}
}

// active returns the member with this number if it gets all data, else the next one that does.
func (r *run) active(from int) *member {
	r.t.Helper()
	for i := range r.members {
		if m := r.members[(from+i)%len(r.members)]; r.getsAll(m, r.group()) {
			return m
		}
	}
	r.t.Fatalf("no member gets all data\n%s", r.state())
	return nil
}

// getsAll reports whether the daemon says that a member gets everything. What is behind another box
// is that box's.
func (r *run) getsAll(m *member, g api.Group) bool {
	for _, x := range g.Members {
		if x.IP == m.IP.String() && x.QPN == uint32(m.qpn) {
			return x.Part == "" || x.Part == "active" || x.Part == api.PartSource || x.Part == "joining" || x.Part == "unknown"
		}
	}
	return false
}

// isUnknown reports whether the daemon says that it does not know what a member has. With a quorum
// that lasts as long as the source, which needs nothing of that member, sends nothing.
func isUnknown(m *member, g api.Group) bool {
	return slices.ContainsFunc(g.Members, func(x api.Member) bool {
		return x.IP == m.IP.String() && x.QPN == uint32(m.qpn) && x.Part == "unknown" && x.Reason != ""
	})
}

// round lets a member write new data to the whole memory. midway is called when half of it is
// written.
func (r *run) round(from *member, midway func()) {
	t := r.t
	t.Helper()
	r.rounds++
	data := bed.Random(memoryBytes, byte(r.rounds))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r.abort = cancel
	all := parts(r.c)
	for i, p := range all {
		half := midway
		if i != len(all)/2 {
			half = nil
		}
		if _, err := bed.Write(ctx, from.qp, r.target(p), data[p.from:p.to], writeBytes, half); err != nil {
			if r.again {
				break
			}
			refused := r.c.Is("event", "refused") && strings.Contains(err.Error(), rnic.RemoteAccess.String())
			if lost := r.c.MayLoseQuorum() && strings.Contains(err.Error(), rnic.RemoteOperational.String()); refused || lost {
				r.broken = true
				break
			}
			t.Fatalf("round %d from %v: %v\n%s", r.rounds, from.IP, err, r.state())
		}
	}
	if r.again {
		r.again = false
		if r.c.Is("addressing", "perftest") {
			r.runPerftest(r.members[0])
		} else {
			r.connectCM(r.members[0])
		}
		r.round(r.members[0], nil)
		return
	}
	if r.broken {
		if r.c.Is("on-fatal", "evict") && r.c.Is("ack", "all") {
			t.Errorf("the source's QP has ended, and the receiver should have left\n%s", r.state())
		}
		return
	}
	if midway != nil && r.c.Is("event", "refused") && r.c.Is("on-fatal", "fail") && r.c.Is("ack", "all") {
		t.Errorf("a receiver has refused a WRITE, and the source has heard nothing\n%s", r.state())
	}
	r.arrived(from, data)
	if err := bed.CheckResponses(from.qp); err != nil {
		t.Error(err)
	}
	delete(r.gone, r.spare)
}

// arrived expects that all have the data for whom the source waits, and soon everybody who gets all
// data.
func (r *run) arrived(from *member, data []byte) {
	t := r.t
	t.Helper()
	has := func(m *member) bool { return m.Has(m.memory, data) }
	lacking := func() (list []*member) {
		for _, m := range r.members {
			if m != from && (m != r.members[0] || !r.c.Is("source-switch", "none")) && !r.gone[m] && !has(m) {
				list = append(list, m)
			}
		}
		return list
	}
	if r.mayLack() {
		n := 0
		for _, m := range r.members {
			if m != from && (has(m) || r.gone[m]) { // who has joined in this round counts for what came since
				n++
			}
		}
		if n < quorum && r.c.Is("ack", "quorum") {
			t.Errorf("round %d: a quorum of %d has acknowledged everything, and %d members have it", r.rounds, quorum, n)
		}
		r.eventually(fmt.Sprintf("round %d: everybody has the data who is not said to lack it", r.rounds), func() bool {
			g := r.group()
			return g.State == api.Degraded || !slices.ContainsFunc(lacking(), func(m *member) bool { return r.getsAll(m, g) && !isUnknown(m, g) })
		})
		return
	}
	for _, m := range lacking() {
		t.Errorf("round %d from %v: everything was acknowledged, and %v lacks some of it\n%s", r.rounds, from.IP, m.IP, r.state())
	}
}

// mayLack reports whether the source may go on without some receivers.
func (r *run) mayLack() bool {
	return r.c.Is("ack", "quorum") || r.c.Is("evict", "yes") || r.c.Is("event", "refused") || r.c.Is("source-switch", "force")
}

// stateIsRight expects that the daemon calls the group healthy, if nobody had to leave it.
func (r *run) stateIsRight() {
	r.t.Helper()
	if !r.mayLack() {
		r.ready()
	}
	// What the box does not take, hosts get: with virtual-qpn the receiver that has the group's IP
	// while no daemon runs, at a switch all of them while that does not know the box.
	ends := slices.Contains([]string{"kill", "restart", "upgrade"}, r.c.Get("event"))
	renamed := r.c.Is("event", "port-renamed")
	direct := r.c.Is("addressing", "virtual-qpn") && ends ||
		r.c.Is("shape", "stick") && renamed || r.c.Is("shape", "standby") && (ends || renamed)
	for _, m := range r.members {
		c := m.RNIC.Counters()
		refused := c.Rejected()
		if m == r.spare && r.c.Is("addressing", "hosts") {
			// The box sends data as soon as it has joined, and its program connects it then.
			refused -= c.Get(rnic.RejectQPN) + c.Get(rnic.RejectState)
		}
		if r.c.Is("addressing", "cm") { // messages of RDMA-CM, and copies that came when their connection had ended
			refused -= c.Get(rnic.RejectQPN) + c.Get(rnic.RejectOpcode)
		}
		if r.c.Is("addressing", "perftest") { // copies that came when their run had ended
			refused -= c.Get(rnic.RejectQPN)
		}
		if refused != 0 && !r.c.Is("event", "refused") && !direct {
			r.t.Errorf("%v refused frames: %v", m.IP, c.ByName())
		}
	}
}

// nothingStays ends the group and the daemons, and looks for what they left.
func (r *run) nothingStays() {
	t := r.t
	t.Helper()
	if r.c.Is("addressing", "cm") {
		r.nothingStaysOfCM()
	} else if r.c.Is("addressing", "perftest") {
		r.nothingStaysOfPerftest()
	} else {
		_, err := r.boxes[0].Client().RemoveGroup(t.Context(), groupName)
		r.check(err)
	}
	for i, b := range r.boxes {
		r.eventually("the group is gone", func() bool {
			g, err := b.Client().Groups(t.Context())
			return err == nil && len(g.Groups) == 0
		})
		r.check(b.stop())
		out := b.ns.MustRun(t, "ip address")
		if !r.c.Is("addressing", "switch-ip") && strings.Contains(out, r.members[0].sees.String()+"/") {
			t.Errorf("box %d still has the group's IP:\n%s", i, out)
		}
		out = b.ns.MustRun(t, "ip -details link")
		if strings.Contains(out, "prog/xdp") {
			t.Errorf("box %d still has an XDP program:\n%s", i, out)
		}
		if left, _ := filepath.Glob(filepath.Join(b.stateDir, "*", groupName+"*")); len(left) > 0 {
			t.Errorf("box %d has kept %q", i, left)
		}
	}
}

// event lets the cell's event happen, in the middle of a transfer.
func (r *run) event() {
	t, last := r.t, r.members[len(r.members)-1]
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	b := r.boxes[r.random.IntN(len(r.boxes))]
	if r.c.Is("addressing", "cm") && r.cmEvent(b, last) || r.c.Is("addressing", "perftest") && r.perftestEvent(b, last) {
		return
	}
	switch r.c.Get("event") {
	case "restart":
		r.ends(b, b.stop)
	case "kill":
		r.ends(b, b.kill)
	case "upgrade":
		r.ends(b, func() error { return errors.Join(b.stop(), writtenBefore(b.stateDir, r.c.Is("shape", "standby"))) })
	case "join":
		r.members = append(r.members, r.spare)
		r.gone[r.spare] = true // until the next round
		if r.c.Is("addressing", "hosts") {
			r.join(ctx, true, r.spare)
			return
		}
		r.update(ctx)
	case "leave":
		if r.c.Is("addressing", "hosts") {
			// The group ends with the member that came first of those that may send.
			if first := r.group().Members[0].IP; last.IP.String() == first {
				last = r.members[len(r.members)-2]
			}
		}
		r.gone[last] = true
		r.members = slices.DeleteFunc(r.members, func(m *member) bool { return m == last })
		if r.c.Is("addressing", "hosts") {
			r.check(last.program.host.Leave(ctx, groupName))
			return
		}
		r.update(ctx)
	case "cut":
		// The story is a link that carries nothing for so long: with evict three times what the
		// group waits for. No verdict depends on it, because the group may do without the receiver
		// then.
		away := 300 * time.Millisecond
		if r.c.Is("evict", "yes") {
			away *= 3
		}
		r.check(last.Loss.Lose(1_000_000))
		time.Sleep(away) // the story
		r.check(last.Loss.Lose(0))
	case "refused":
		for _, p := range parts(r.c) {
			last.RNIC.Deregister(last.at(r.c, p).RKey)
		}
	case "region":
		v := rnic.Remote{VA: 1 << 50, RKey: 0x999}
		_, err := r.boxes[0].Client().ChangeRegions(ctx, r.name, api.RegionChange{
			Add: []api.NewRegion{newRegion(v, 4096, r.receivers(), func(*member) rnic.Remote { return v })}})
		r.check(err)
		_, err = r.boxes[0].Client().ChangeRegions(ctx, r.name, api.RegionChange{Remove: []api.RegionStart{{VA: api.Hex(v.VA), RKey: api.Hex(v.RKey)}}})
		r.check(err)
	case "port-renamed":
		p := r.ports[last.number]
		for _, names := range [][2]string{{p.name, "renamed0"}, {"renamed0", p.name}} {
			p.box.ns.MustRun(r.t, "ip link set %s down", names[0])
			p.box.ns.MustRun(r.t, "ip link set %s name %s", names[0], names[1])
			p.box.ns.MustRun(r.t, "ip link set %s up", names[1])
			if p.box.own.Is6() { // the kernel takes it away with the link
				p.box.ns.MustRun(r.t, "ip address add %v dev %s nodad", netip.PrefixFrom(p.box.own, r.at[0].Network().Bits()), names[1])
			}
		}
	case "route-moved":
		r.moveNextHops(b)
	}
}

// writtenBefore makes the stored files what a release wrote that knew no checksums: their first
// lines are missing, and of a state with nothing to say there is no file. elsewhere: the group
// files are in etcd.
func writtenBefore(stateDir string, elsewhere bool) error {
	files, err := filepath.Glob(filepath.Join(stateDir, "*", groupName+".*"))
	if err == nil && len(files) == 0 && !elsewhere {
		err = fmt.Errorf("nothing is stored in %s", stateDir)
	}
	for _, name := range files {
		text, e := os.ReadFile(name)
		switch line, rest, _ := bytes.Cut(text, []byte("\n")); {
		case !bytes.HasPrefix(line, []byte("# checksum ")):
		case len(rest) == 0:
			e = errors.Join(e, os.Remove(name))
		default:
			e = errors.Join(e, os.WriteFile(name, rest, 0o600))
		}
		err = errors.Join(err, e)
	}
	return err
}

// moveNextHops gives the interface by which a box reaches its hosts another MAC.
func (r *run) moveNextHops(b *box) {
	r.t.Helper()
	link := bed.Bridge
	if r.c.Is("shape", "stick") {
		link = "eth1"
	}
	b.ns.MustRun(r.t, "ip link set %s address 02:00:00:00:77:01", link)
}

// ends lets a daemon end in some way, and begin again. Where another box stands by, it takes over.
func (r *run) ends(b *box, end func() error) {
	r.t.Helper()
	if !r.c.Is("shape", "standby") {
		r.check(end())
		r.begin(b)
		return
	}
	first, second := r.boxes[0], r.boxes[1]
	r.check(end())
	if b == first {
		r.check(bed.Drop(first.ns, r.ip))
		r.check(bed.Hold(second.ns, r.ip))
		r.boxes[0], r.boxes[1] = second, first
	}
	r.begin(b)
}

func (r *run) update(ctx context.Context) {
	r.t.Helper()
	r.file = text(r.c, r.members[0].sees, r.members)
	_, err := r.boxes[0].Client().UpdateGroup(ctx, groupName, []byte(r.file))
	switch {
	case err == nil:
	case r.c.Is("ack", "quorum") && r.c.Is("event", "join") && strings.Contains(err.Error(), "takes no part in the group any more (behind)"):
		r.members = r.members[:len(r.members)-1] // the quorum went on without the box behind which it would be
	default:
		r.t.Fatalf("%v\n%s", err, r.file)
	}
}
