package groups

import (
	"context"
	"errors"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/yamldoc"
)

// APIError converts an error to the form that clients receive.
func APIError(err error) error {
	if e := (*api.Error)(nil); errors.As(err, &e) {
		return e
	}
	if e := (*yamldoc.Error)(nil); errors.As(err, &e) {
		return &api.Error{Kind: api.BadFile, Message: e.Message, Line: e.Line}
	}
	return api.Errorf(api.Internal, "%v", err)
}

// NoGroup is the error of a request for a group that is not there.
func NoGroup(name string) error {
	return api.Errorf(api.NotFound, "there is no group %q; rocast group ls lists the groups", name)
}

// GivenUp returns the error for a request that was cancelled because its client disconnected or the
// daemon is stopping.
func GivenUp(ctx context.Context) error {
	return api.Errorf(api.Internal, "the request ended before it was done (%v); nothing has changed", ctx.Err())
}

// ChangedMeanwhile is the error of a change that was made from an older version of a group.
func ChangedMeanwhile(name string) error {
	return api.Errorf(api.Stale, "group %s was changed by someone else at the same time; look at it with rocast group show, and try again", name)
}

// BelongsTo is the error of a request to change a group here that was created on another box.
func BelongsTo(g *Version) error {
	return api.Errorf(api.BadRequest, "group %s was created on box %s, which asks this box for a part of it; change or remove it there",
		g.Name, g.Branch.Root)
}
