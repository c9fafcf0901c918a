package ctl

import (
	"context"
	"errors"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/yamldoc"
)

// apiError converts an error to the form that clients receive.
func apiError(err error) error {
	if e := (*api.Error)(nil); errors.As(err, &e) {
		return e
	}
	if e := (*yamldoc.Error)(nil); errors.As(err, &e) {
		return &api.Error{Kind: api.BadFile, Message: e.Message, Line: e.Line}
	}
	return api.Errorf(api.Internal, "%v", err)
}

func noGroup(name string) error {
	return api.Errorf(api.NotFound, "there is no group %q; rocast group ls lists the groups", name)
}

// givenUp returns the error for a request that was cancelled because its client disconnected or the
// daemon is stopping.
func givenUp(ctx context.Context) error {
	return api.Errorf(api.Internal, "the request ended before it was done (%v); nothing has changed", ctx.Err())
}
