package watch

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/roce"
)

// Confirm records that a member's program says that its QP is ready. Confirm compares what the
// program says of the QP with the group file, because a QP that differs loses data or ends.
func (w *Watch) Confirm(name string, ready *api.Confirmation) error {
	w.Groups.Lock()
	defer w.Groups.Unlock()
	g := w.Groups.Named(name)
	switch {
	case g == nil:
		return groups.NoGroup(name)
	case g.Wanted == nil:
		return api.Errorf(api.BadRequest, "group %s does not run (%s)", name, g.Problem)
	}
	m, err := receiverToConfirm(&g.Version, *ready)
	if err != nil {
		return err
	}
	if err := checkQP(g.Wanted, m, *ready); err != nil {
		return err
	}
	if r := g.Past.Ended(m.ID()); r != nil {
		return api.Errorf(api.BadRequest, "QP %d of %v gets no data from group %s (%s)", m.QPN, m.IP, g.Name, r.Advice(g.OfService()))
	}
	if g.Past.IsConfirmed(m.ID()) {
		return nil
	}
	before := g.Past.Share()
	g.Past.Confirm(m.ID())
	// A source begins to send when it sees the confirmation, so a crash must not lose it.
	if err := w.Groups.SaveChronicle(g); err != nil {
		g.Past = before
		return fmt.Errorf("the confirmation of QP %d of %v cannot be stored, so it does not count (%w); repair the cause and confirm again", m.QPN, m.IP, err)
	}
	if err := w.Groups.LetJoin(g); err != nil {
		g.Past = before
		return fmt.Errorf("QP %d of %v cannot join, so its confirmation does not count (%w); repair the cause and confirm again",
			m.QPN, m.IP, errors.Join(err, w.Groups.SaveChronicle(g)))
	}
	w.confirmed(g, m, fmt.Sprintf("its QP %d is in state %s", m.QPN, strings.ToUpper(ready.State)))
	return nil
}

// ConfirmedAbove records which receivers have confirmed at a box above. The caller has locked the
// groups.
func (w *Watch) ConfirmedAbove(g *groups.Group, ids []api.MemberID) {
	if g.Wanted == nil { // its stored file cannot be read
		return
	}
	before := g.Past.Share()
	var news []*groupfile.Member
	for _, named := range ids {
		i := g.Wanted.Receiver(groupfile.ID{IP: groups.AddrOf(named.IP), RemoteQPN: roce.QPN(named.RemoteQPN)})
		if i < 0 || !g.Past.Confirm(g.Wanted.Receivers[i].ID()) {
			continue
		}
		news = append(news, &g.Wanted.Receivers[i])
	}
	if len(news) == 0 {
		return
	}
	if err := w.Groups.SaveChronicle(g); err != nil {
		g.Past = before
		w.Log.Error("could not store that members have confirmed; the box above says so again", zap.String("group", g.Name), zap.Error(err))
		return
	}
	if err := w.Groups.LetJoin(g); err != nil {
		g.Past = before
		w.Log.Error("members that have confirmed cannot join; the box above says so again", zap.String("group", g.Name),
			zap.Error(errors.Join(err, w.Groups.SaveChronicle(g))))
		return
	}
	for _, m := range news {
		w.confirmed(g, m, fmt.Sprintf("box %s says so", g.Branch.Upper))
	}
}

// confirmed tells that a receiver has confirmed. If it is behind another box, that box hears so
// with its next renewal, which is due at once.
func (w *Watch) confirmed(g *groups.Group, m *groupfile.Member, cause string) {
	w.Groups.Changed(g)
	if l := groups.LinkOf(g.Links, m.ID()); l != nil {
		l.Due = true
	}
	w.Log.Info("member confirmed", zap.String("group", g.Name), zap.Stringer("member", m.IP))
	w.Groups.MemberEvent(api.MemberConfirmed, g, m.ID(), "%s", cause)
}

// receiverToConfirm finds the receiver that a confirmation is about.
func receiverToConfirm(g *groups.Version, ready api.Confirmation) (*groupfile.Member, error) {
	ip, err := netip.ParseAddr(ready.IP)
	if err != nil {
		return nil, api.Errorf(api.BadRequest, "ip is %q; write the address of the member, such as 10.77.0.2", ready.IP)
	}
	list := g.Wanted.Receivers
	i := slices.IndexFunc(list, func(m groupfile.Member) bool { return m.IP == ip && m.QPN == roce.QPN(ready.QPN) })
	if i < 0 {
		return nil, api.Errorf(api.NotFound, "QP %d of %v is no receiver of group %s; rocast group show %s lists them", ready.QPN, ip, g.Name, g.Name)
	}
	return &list[i], nil
}

// checkQP refuses a QP that does not fit the group file.
func checkQP(f *groupfile.File, m *groupfile.Member, ready api.Confirmation) error {
	const advice = "; create the QP again, or correct the group"
	switch state := strings.ToUpper(ready.State); {
	case state != "RTR" && state != "RTS":
		return api.Errorf(api.BadRequest, "QP %d of %v is in state %q, and receives only in RTR and RTS; move it there and confirm again",
			m.QPN, m.IP, ready.State)
	case ready.PSN != nil && roce.PSN(*ready.PSN) != m.FirstPSN:
		return api.Errorf(api.BadRequest, "QP %d of %v expects PSN %d, and the group file says psn: %d"+advice, m.QPN, m.IP, *ready.PSN, m.FirstPSN)
	case ready.RemoteQPN != 0 && roce.QPN(ready.RemoteQPN) != m.RemoteQPN:
		return api.Errorf(api.BadRequest, "QP %d of %v has remote QPN %d, and the group has %d"+advice, m.QPN, m.IP, ready.RemoteQPN, m.RemoteQPN)
	case ready.MTU != 0 && ready.MTU != f.PathMTU:
		return api.Errorf(api.BadRequest, "QP %d of %v has path MTU %d, and the group has %d"+advice, m.QPN, m.IP, ready.MTU, f.PathMTU)
	}
	return nil
}
