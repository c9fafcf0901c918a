//go:build !librocast || !cgo

package main

import (
	"context"
	"errors"

	"github.com/rocast/rocast/host/copying/program"
)

// transport is that of a build without librocast.
type transport struct{}

var errWithout = errors.New("this rocast-cp was built without librocast, so it can copy nothing: use the one of the package librocast")

func (transport) Send(context.Context, program.Membership) (program.Sending, error) {
	return nil, errWithout
}

func (transport) Receive(context.Context, program.Membership) (program.Receiving, error) {
	return nil, errWithout
}
