package branches

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/roce"
)

// PutBranch sets up, renews or changes the part of a group that an upper box asks this one to
// carry. When it returns without error, the group is set up here and at all boxes behind this one.
// If it returns an error, nothing has changed, except that a branch that had to be replaced has
// ended: the next request sets it up.
func (t *Branches) PutBranch(ctx context.Context, upper, name string, b api.Branch) (api.BranchAnswer, error) {
	if err := t.refuseBranch(upper, name, &b); err != nil {
		return api.BranchAnswer{}, err
	}
	if b.Hear {
		hearFor(ctx, t, upper, name, &b)
	}
	if answer, renewed := t.renew(upper, name, &b); renewed {
		return answer, nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(b.Within)*time.Millisecond)
	defer cancel()
	unlock, busy, err := t.Groups.Names.Lock(ctx, name, upper)
	if err != nil {
		return api.BranchAnswer{}, err
	}
	if busy {
		return api.BranchAnswer{}, api.Errorf(api.Exists, "group %s is being changed at box %s itself; try again, or write "+
			"another name", name, t.Box)
	}
	defer unlock()
	g, err := t.branchFor(upper, name, &b)
	if err != nil {
		return api.BranchAnswer{}, err
	}
	if g == nil {
		g, err = t.newBranch(ctx, upper, name, &b)
	} else {
		g, err = t.nextBranch(ctx, g, upper, &b)
	}
	t.Groups.Lock()
	defer t.Groups.Unlock()
	if err != nil {
		if g != nil { // the branch stays as it was as long as the box above asks for the change
			t.Groups.Changed(g)
			g.Branch.Expires = time.Now().Add(g.Branch.Lease)
			t.Confirmed(g, b.Confirmed) // the change may wait for one of these
			t.hearAbove(g, b.Problem)
		}
		return api.BranchAnswer{}, aboutBranch(err)
	}
	t.Confirmed(g, b.Confirmed)
	t.hearAbove(g, b.Problem)
	return t.branchAnswer(g), nil
}

// aboutBranch is groups.APIError without the line: the upper box has written the file, so no user
// has seen its lines.
func aboutBranch(err error) error {
	err = groups.APIError(err)
	if e := (*api.Error)(nil); errors.As(err, &e) && e.Line > 0 {
		return api.Errorf(e.Kind, "%s", e.Message)
	}
	return err
}

// renew extends the lease of a branch, if the request is about the version that the branch has. It
// does not wait for a change that is under way: the change may wait for a box behind this one that
// does not answer, and then this box would seem not to answer either.
func (t *Branches) renew(upper, name string, b *api.Branch) (answer api.BranchAnswer, renewed bool) {
	t.Groups.Lock()
	defer t.Groups.Unlock()
	g := t.Groups.Named(name)
	if g == nil || g.Branch == nil || g.Branch.Upper != upper || g.Branch.Root != b.Root || g.Branch.Version != b.Version {
		return answer, false
	}
	t.Groups.Changed(g)
	if b.Hear {
		t.Groups.Observe(g)
	}
	g.Branch.Lease, g.Branch.Service = time.Duration(b.Lease)*time.Second, b.OfService
	g.Branch.Expires = time.Now().Add(g.Branch.Lease)
	t.Confirmed(g, b.Confirmed)
	t.hearAbove(g, b.Problem)
	return t.branchAnswer(g), true
}

// hearFor asks the boxes behind this one what has happened to the receivers there, before the box
// above is answered, which asks for that. It leaves enough time for the answer, which has what this
// box knows if another box does not answer.
func hearFor(ctx context.Context, t *Branches, upper, name string, b *api.Branch) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(b.Within)*time.Millisecond*3/4)
	defer cancel()
	unlock, busy, err := t.Groups.Names.Lock(ctx, name, upper)
	if busy || err != nil {
		return
	}
	defer unlock()
	t.Groups.Lock()
	g := t.Groups.Named(name)
	carries := g != nil && g.Branch != nil && g.Branch.Upper == upper
	t.Groups.Unlock()
	if carries {
		t.hearBelow(ctx, g, g.Links)
	}
}

func (t *Branches) noNeighbour(name string) error {
	return api.Errorf(api.Forbidden, "box %s is not a neighbour of box %s; add it to neighbours: in the config of %s", name, t.Box, t.Box)
}

// refuseBranch refuses a request that is wrong whatever groups this box has.
func (t *Branches) refuseBranch(upper, name string, b *api.Branch) error {
	n := t.neighbourNamed(upper)
	switch {
	case n == nil:
		return t.noNeighbour(upper)
	case b.Registration != api.Registration:
		return api.Errorf(api.BadRequest, "box %s registers with version %d and box %s with version %d; run the same version of "+
			"rocast on both", upper, b.Registration, t.Box, api.Registration)
	case slices.Contains(b.Visited, t.Box):
		return api.Errorf(api.BadRequest, "group %s comes back to box %s, by %s; correct the routes to its members",
			name, t.Box, strings.Join(b.Visited, ", "))
	case len(b.Visited) == 0 || b.Visited[0] != b.Root || b.Visited[len(b.Visited)-1] != upper:
		return api.Errorf(api.BadRequest, "the boxes on the way are %q, which do not lead from %s to %s", b.Visited, b.Root, upper)
	case groups.AddrOf(b.Link.IP) != n.Address:
		return api.Errorf(api.BadRequest, "box %s says that its link address is %s, and neighbours: of box %s says %v; correct one "+
			"of them (local: sets the address that a box uses)", upper, b.Link.IP, t.Box, n.Address)
	case b.Link.QPN < 2 || b.Link.QPN >= 1<<24-1 || b.Link.PSN >= 1<<24:
		return api.Errorf(api.BadRequest, "QPN %d and PSN %d are no end of a link", b.Link.QPN, b.Link.PSN)
	case b.Lease < 1 || b.Within < 1:
		return api.Errorf(api.BadRequest, "lease is %d and within is %d; both must be at least 1", b.Lease, b.Within)
	}
	return nil
}

// branchFor returns the group that a request is about, or nil if the request makes a new one.
func (t *Branches) branchFor(upper, name string, b *api.Branch) (*groups.Group, error) {
	t.Groups.Lock()
	defer t.Groups.Unlock()
	g := t.Groups.Named(name)
	if g == nil {
		return nil, t.gone.refuseStale(ended{upper, name}, b.Version)
	}
	switch was := g.Branch; {
	case was == nil:
		return nil, api.Errorf(api.Exists, "group %s was created at box %s itself, and box %s is the root of another group with that "+
			"name; write another name", name, t.Box, b.Root)
	case was.Root != b.Root && was.Claim > 0 && b.Claim > was.Claim: // another box has taken the group over
	case was.Root != b.Root:
		return nil, api.Errorf(api.Exists, "box %s carries group %s for the root %s, and box %s is the root of another group with that "+
			"name; write another name", t.Box, name, was.Root, b.Root)
	case was.Upper != upper && b.Epoch <= was.Epoch:
		return nil, api.Errorf(api.Exists, "two ways of group %s meet at box %s: box %s asks for members here already, and now box %s; "+
			"correct the routes so that one of them leads to all members behind box %s", name, t.Box, was.Upper, upper, t.Box)
	case was.Upper == upper && b.Version < was.Version:
		return nil, stale(name, b.Version, was.Version)
	}
	return g, nil
}

func stale(name string, version, known uint64) error {
	return api.Errorf(api.Stale, "version %d of group %s is older than version %d, which came before", version, name, known)
}

// parseBranch returns the part of the group that the request asks for. own is this box's end.
// receives reports whether the box above is a receiver already.
func parseBranch(name string, b *api.Branch, own api.LinkEnd, receives bool) (*groupfile.File, error) {
	link := groupfile.Member{
		IP: groups.AddrOf(b.Link.IP), QPN: roce.QPN(b.Link.QPN), FirstPSN: roce.PSN(b.Link.PSN), Role: groupfile.Source,
		RemoteIP: groups.AddrOf(own.IP), RemoteQPN: roce.QPN(own.QPN),
	}
	f, err := groupfile.ParseBranch([]byte(b.File), link)
	if err != nil || receives || slices.ContainsFunc(f.Receivers, groups.IsBoth) {
		// A member here may become the source, or did. Then the upper box is one of its receivers,
		// and may be the only one.
		link.Role, link.SendPSN, link.FirstPSN = groupfile.Both, roce.PSN(b.Link.PSN), roce.PSN(own.PSN)
		f, err = groupfile.ParseBranch([]byte(b.File), link)
	}
	if err == nil && f.Name != name {
		err = fmt.Errorf("the file describes group %s", f.Name)
	}
	return f, err
}

// newBranch sets up a group for an upper box.
func (t *Branches) newBranch(ctx context.Context, upper, name string, b *api.Branch) (*groups.Group, error) {
	t.Groups.Lock()
	came, switched := t.gone.recall(ended{upper, name}, b)
	t.Groups.Unlock()
	own, err := t.ownEnd(upper, b)
	if err != nil {
		return nil, err
	}
	file, err := parseBranch(name, b, own, false)
	if err != nil {
		return nil, err
	}
	if (b.Switched || switched) && !file.IsRelayed() {
		return nil, errSwitchedBelow
	}
	g := groups.New(file, true)
	g.Restored, g.Epoch = b.Begun, b.Epoch
	g.Branch = newBranchOf(upper, b, own)
	joins := joinsIn(b, file)
	if b.Begun && !file.IsRelayed() {
		for _, id := range joins {
			g.Past.LetJoin(id)
			delete(came, id)
		}
	}
	for id, at := range came {
		if g.Wanted.Receiver(id) >= 0 {
			at.Enter(&g.Past, id)
		}
	}
	defer t.Resolve(ctx, file.Members())()
	if err := stand(ctx, t, g, file.Text(), joins); err != nil {
		return nil, err
	}
	t.Log.Info("branch set up", zap.String("group", name), zap.String("upper", upper), zap.String("root", b.Root),
		zap.Int("members", len(file.Receivers)), zap.Bool("fresh", !b.Begun))
	return g, nil
}

// joinsIn returns the receivers of a branch that join with a request.
func joinsIn(b *api.Branch, f *groupfile.File) (ids []groupfile.ID) {
	for _, m := range b.Joins {
		id := groupfile.ID{IP: groups.AddrOf(m.IP), RemoteQPN: roce.QPN(m.RemoteQPN)}
		if f.Receiver(id) >= 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

func newBranchOf(upper string, b *api.Branch, own api.LinkEnd) *groups.Branch {
	lease := time.Duration(b.Lease) * time.Second
	return &groups.Branch{
		Upper: upper, Root: b.Root, Epoch: b.Epoch, Claim: b.Claim, Visited: b.Visited, Version: b.Version, Lease: lease,
		Link: b.Link, First: b.First, Own: own, Service: b.OfService, Expires: time.Now().Add(lease), Sent: roce.PSN(b.Link.PSN).Prev(),
	}
}

// ownEnd returns this box's end of a link: the end of an earlier answer, if the request has it, or
// a new one.
func (t *Branches) ownEnd(upper string, b *api.Branch) (api.LinkEnd, error) {
	local, err := t.linkAddress(upper)
	if err != nil {
		return api.LinkEnd{}, err
	}
	if y := b.Yours; y != nil && groups.AddrOf(y.IP) == local && y.QPN >= 2 && y.QPN < 1<<24-1 && y.PSN < 1<<24 {
		return *y, nil
	}
	return newEnd(local, roce.PSN(b.Link.PSN)), nil
}

// nextBranch changes a branch. If anything but its receivers changes, such as the link, which is
// its source, the branch is replaced.
func (t *Branches) nextBranch(ctx context.Context, g *groups.Group, upper string, b *api.Branch) (*groups.Group, error) {
	if g.Branch.Upper == upper {
		if changed, err := t.changeBranch(ctx, g, upper, b); changed || err != nil {
			return g, err
		}
	}
	if b.Switched && !g.File.IsRelayed() { // newBranch would refuse it
		return nil, errSwitchedBelow
	}
	if err := t.dropBranch(g, b.Version-1); err != nil {
		return nil, err
	}
	return t.newBranch(ctx, upper, g.Name, b)
}

// changeBranch changes the members of a branch. The request may have another queue pair of the
// upper box for the link: then receivers that already run have moved here, and the branch begins
// again as after a restart. changed is false if anything else of the group changes, which this
// function cannot do.
func (t *Branches) changeBranch(ctx context.Context, g *groups.Group, upper string, b *api.Branch) (changed bool, err error) {
	was, own := *g.Wanted, g.Branch.Own
	relinked := b.Link.QPN != g.Branch.Link.QPN
	if !g.Branch.IsBy(b) {
		return false, nil // another group: this box did not hear that the one before was withdrawn
	}
	if relinked {
		if own, err = t.ownEnd(upper, b); err != nil {
			return false, err
		}
	}
	file, err := parseBranch(g.Name, b, own, groups.IsBoth(was.Source))
	if err != nil {
		return false, err
	}
	if file.Source.FirstPSN == was.Source.FirstPSN && (relinked || was.Source.Role != file.Source.Role) {
		was.Source = file.Source // with the first member that may become the source, the box above becomes a receiver
	}
	t.Groups.Lock()
	came, possible := whoCame(g, file, b.Later, relinked)
	runs := g.Published != nil
	t.Groups.Unlock()
	if !runs || file.CheckUpdate(&was) != nil || !possible {
		return false, nil
	}
	next := newBranchOf(upper, b, own)
	defer t.Resolve(ctx, file.Members())()
	if relinked {
		return true, t.move(ctx, g, file, next, came)
	}
	return true, t.Change(ctx, g, file, file.Text(), next, came)
}

// whoCame returns the receivers of a file that are new here and do not join: those that already
// run, and those that take no part any more. possible is false if one that runs comes to a branch
// that does not begin again. The caller has locked the groups.
func whoCame(g *groups.Group, file *groupfile.File, stated []api.Later, again bool) (came map[groupfile.ID]groups.Membership, possible bool) {
	came, wanted := map[groupfile.ID]groups.Membership{}, groups.MembershipsIn(stated)
	for i := range file.Receivers {
		m := &file.Receivers[i]
		at := wanted[m.ID()]
		if g.Wanted.Receiver(m.ID()) >= 0 || m.RemoteIP.IsValid() {
			if own := g.MembershipOf(m.ID()); again && (at.Out && !own.Out || at.Known && at != own) {
				return nil, false // the upper box has lost its state, and its PSNs on the link are others
			}
			continue
		}
		if at.Known && !again {
			return nil, false
		}
		if again || at.Out {
			came[m.ID()] = at
		}
	}
	return came, true
}

// dropBranch ends a branch here and behind this box. Requests up to version are refused from then
// on.
func (t *Branches) dropBranch(g *groups.Group, version uint64) error {
	t.Groups.Lock()
	err := t.endBranch(g, version)
	t.Groups.Unlock()
	if err == nil {
		t.Withdraw(g.Name, g.Links)
	}
	return err
}

// endBranch ends a branch here. The caller has locked the groups, and withdraws what is behind this
// box.
func (t *Branches) endBranch(g *groups.Group, version uint64) error {
	err := t.Groups.Forget(g)
	if err == nil {
		t.gone.bury(ended{g.Branch.Upper, g.Name}, grave{
			version: version, until: time.Now().Add(g.Branch.Lease),
			branch: g.Branch, memberships: groups.MembershipsIn(g.AnswerLater()), switched: g.Past.Switched,
		})
	}
	return err
}

// DeleteBranch withdraws a group that an upper box asked for.
func (t *Branches) DeleteBranch(ctx context.Context, upper, name string, version uint64) error {
	unlock, busy, err := t.Groups.Names.Lock(ctx, name, upper)
	if err != nil {
		return err
	}
	if busy {
		return api.Errorf(api.Exists, "group %s is being changed at box %s itself; try again", name, t.Box)
	}
	defer unlock()
	t.Groups.Lock()
	g := t.Groups.Named(name)
	if g == nil {
		// The request to set it up may arrive after this one.
		if n := t.neighbourNamed(upper); n != nil && t.gone.refuseStale(ended{upper, name}, version) == nil {
			t.gone.bury(ended{upper, name}, grave{version: version, until: time.Now().Add(t.lease())})
		}
		t.Groups.Unlock()
		return groups.NoGroup(name)
	}
	t.Groups.Unlock()
	switch {
	case g.Branch == nil || g.Branch.Upper != upper:
		return api.Errorf(api.Forbidden, "box %s does not carry group %s for box %s", t.Box, name, upper)
	case version < g.Branch.Version:
		return stale(name, version, g.Branch.Version)
	}
	if err := t.dropBranch(g, version); err != nil {
		return groups.APIError(err)
	}
	t.Log.Info("branch withdrawn", zap.String("group", name), zap.String("upper", upper))
	return nil
}

// branchAnswer tells the upper box the state of a branch. The caller has locked the groups.
func (t *Branches) branchAnswer(g *groups.Group) api.BranchAnswer {
	return api.BranchAnswer{Version: g.Branch.Version, Link: g.Branch.Own, Waiting: t.Absent(g), Later: g.AnswerLater()}
}

// Absent lists the members and boxes that a group waits for, here and behind this box.
func (t *Branches) Absent(g *groups.Group) (list []api.Absent) {
	if g.Problem != "" {
		return []api.Absent{{Box: t.Box, Reason: g.Problem}}
	}
	for l := range g.Plan.Members() {
		if waits, reason := g.WaitsFor(l); waits {
			list = append(list, api.Absent{Box: t.Box, Member: l.Member.IP.String(), Reason: reason})
		}
	}
	for _, l := range g.Links {
		if l.Problem != "" {
			list = append(list, api.Absent{Box: t.Box, Reason: l.Problem})
		}
		list = append(list, l.Absent...)
	}
	return list[:min(len(list), groups.MaxAbsent)]
}

// errSwitchedBelow refuses a new branch of a group whose source has switched: only the box that had
// the branch before has stored the turns.
var errSwitchedBelow = api.Errorf(api.BadRequest, "its source has switched, so no box can begin to carry a part of it; remove the group and create it "+
	"again with fresh QPs and PSNs")
