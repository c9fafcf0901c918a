package branches

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/neighbour"
)

// errand has the values that all requests about one version of a group share.
type errand struct {
	name, root string
	epoch      uint64
	claim      int64    // see api.Branch
	visited    []string // up to this box
	file       *groupfile.File
	confirmed  []groupfile.ID    // the receivers that have confirmed, wherever they are
	joins      []groupfile.ID    // see api.Branch
	switched   bool              // see api.Branch
	ofService  bool              // see api.Branch
	problem    string            // see api.Branch
	out        map[string]string // by box: why its link takes no part in the group any more
	hear       bool              // see api.Branch
}

// errandOf returns what the requests to all boxes behind a group's links have in common, for file
// f. The caller has locked the groups, unless the group is new.
func (t *Branches) errandOf(g *groups.Group, f *groupfile.File) errand {
	e := errand{name: g.Name, root: t.Box, epoch: g.Epoch, claim: g.Claim, visited: []string{t.Box}, file: below(f), switched: g.Past.Switched,
		ofService: g.OfService(), problem: g.Problem, out: map[string]string{}}
	for _, l := range g.Links {
		e.out[l.Box] = g.OutBehind(l)
	}
	for i := range f.Receivers {
		if id := f.Receivers[i].ID(); g.Past.IsConfirmed(id) {
			e.confirmed = append(e.confirmed, id)
		}
	}
	if b := g.Branch; b != nil {
		e.root, e.claim, e.visited = b.Root, b.Claim, append(slices.Clone(b.Visited), t.Box)
		if e.problem == "" {
			e.problem = b.Above
		}
	}
	return e
}

// ask sends the state of a link to its box, and returns the link as it is after the answer.
func (t *Branches) ask(ctx context.Context, e errand, l groups.Link) (groups.Link, error) {
	within := timeToAsk(ctx)
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	file := e.file
	if l.Passes() {
		file = passedOn(file)
	}
	request := api.Branch{
		Registration: api.Registration, Root: e.root, Epoch: e.epoch, Claim: e.claim, Visited: e.visited, Version: l.Version,
		Lease: int(t.lease() / time.Second), Within: int(within / time.Millisecond), Begun: l.Begun, Link: l.Local, First: l.FirstQPN(),
		File: string(file.BranchText(l.MembersIn(file))), Switched: e.switched, OfService: e.ofService, Problem: cmp.Or(e.problem, e.out[l.Box]), Hear: e.hear,
	}
	for _, m := range l.Later {
		request.Later = append(request.Later, m.Message())
	}
	request.Joins, request.Confirmed = namesOf(&l, e.joins), namesOf(&l, e.confirmed)
	if l.Remote.QPN != 0 {
		request.Yours = &l.Remote
	}
	l.Asked = time.Now()
	answer, err := t.Boxes.PutBranch(ctx, l.Box, e.name, request)
	if err == nil {
		err = t.checkAnswer(&l, answer)
	}
	if l.Passes() && hasKind(err, api.BadFile) && strings.Contains(err.Error(), groupfile.KeyRelayQPN) {
		err = api.Errorf(api.BadRequest, "box %s runs an older release of rocast, which merges what its receivers answer, and a quorum "+
			"counts each of them; upgrade it", l.Box)
	}
	if err != nil {
		l.Problem = tellable(err).Error()
		return l, err
	}
	l.Remote, l.Absent, l.Problem, l.Begun = answer.Link, answer.Waiting, "", true
	l.Hear(answer.Later)
	return l, nil
}

// namesOf names those of a list of receivers that are behind a link, for its box.
func namesOf(l *groups.Link, list []groupfile.ID) (names []api.MemberID) {
	for _, id := range list {
		if slices.Contains(l.Members, id) {
			names = append(names, api.MemberID{IP: id.IP.String(), RemoteQPN: uint32(id.RemoteQPN)})
		}
	}
	return names
}

func (t *Branches) checkAnswer(l *groups.Link, a api.BranchAnswer) error {
	n := t.neighbourNamed(l.Box)
	switch {
	case a.Version != l.Version:
		return fmt.Errorf("box %s answers version %d of the branch, and version %d was sent; is another box with the name %s there?",
			l.Box, a.Version, l.Version, t.Box)
	case groups.AddrOf(a.Link.IP) != n.Address:
		return fmt.Errorf("box %s says that its link address is %s, and neighbours: of box %s says %v; correct one of them",
			l.Box, a.Link.IP, t.Box, n.Address)
	case a.Link.QPN < 2 || a.Link.QPN >= 1<<24-1 || a.Link.PSN >= 1<<24:
		return fmt.Errorf("box %s answers with an end of the link that no queue pair can have (QPN %d, PSN %d); run the same "+
			"version of rocast on both", l.Box, a.Link.QPN, a.Link.PSN)
	}
	return nil
}

// askAll sends the state of several links at once, and returns the links as they are after the
// answers. The error names every box that failed.
func (t *Branches) askAll(ctx context.Context, e errand, links []*groups.Link) ([]*groups.Link, error) {
	next, errs := make([]*groups.Link, len(links)), make([]error, len(links))
	var asking sync.WaitGroup
	for i := range links {
		asking.Go(func() {
			var l groups.Link
			l, errs[i] = t.ask(ctx, e, *links[i])
			next[i] = &l
		})
	}
	asking.Wait()
	return next, errors.Join(errs...)
}

// Withdraw ends a group at the boxes behind links. It has its own time limit, because the request
// that caused it may have ended. A box that cannot be told ends its branch when the lease ends.
func (t *Branches) Withdraw(name string, links []*groups.Link) {
	ctx, cancel := context.WithTimeout(context.Background(), withdrawWithin)
	defer cancel()
	var asking sync.WaitGroup
	for _, l := range links {
		asking.Go(func() {
			err := t.Boxes.DeleteBranch(ctx, l.Box, name, groups.NextVersion(l.Version, time.Now()))
			if e := (*api.Error)(nil); err != nil && !(errors.As(err, &e) && e.Kind == api.NotFound) {
				t.Log.Warn("could not withdraw a group from a neighbour; its lease ends it there",
					zap.String("group", name), zap.String("neighbour", l.Box), zap.Error(tellable(err)))
			}
		})
	}
	asking.Wait()
}

// notSetUp returns the error of a group that could not be set up at all boxes, for the user who
// sent the group file. Its kind is BadFile if a box refuses the file, and Exists if a box has
// another group of that name.
func notSetUp(name string, err error) error {
	kind := api.Internal
	switch {
	case hasKind(err, api.BadFile):
		kind = api.BadFile
	case hasKind(err, api.Exists):
		kind = api.Exists
	}
	return api.Errorf(kind, "group %s could not be set up: %v", name, err)
}

// tellable returns the form of an error about other boxes for logs, events and the state of a
// group. If a box's refusal is about the group file, or has no known cause, the refusal may quote
// the file, and so an R_Key that stands at a wrong key. Then tellable keeps only the box's name.
func tellable(err error) error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		var list []error
		for _, e := range all.Unwrap() {
			list = append(list, tellable(e))
		}
		return errors.Join(list...)
	}
	r := (*neighbour.Refusal)(nil)
	if errors.As(err, &r) && (r.Cause.Kind == api.BadFile || r.Cause.Kind == api.Internal) {
		return fmt.Errorf("box %s refuses its part", r.Box)
	}
	return err
}

// hasKind reports whether an error, or one of those that it joins, is of a kind.
func hasKind(err error, kind api.Kind) bool {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return slices.ContainsFunc(all.Unwrap(), func(e error) bool { return hasKind(e, kind) })
	}
	e := (*api.Error)(nil)
	return errors.As(err, &e) && e.Kind == kind
}

// registrationFailed records that a group could not be created at all its boxes, for programs that
// wait for the group: they have to go another way.
func (t *Branches) registrationFailed(name string, err error) {
	t.Groups.Events.Add(api.Event{Kind: api.GroupDegraded, Group: name, Cause: fmt.Sprint("its registration failed: ", tellable(err))})
}
