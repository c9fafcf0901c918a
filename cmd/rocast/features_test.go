package main

import (
	"testing"

	"github.com/rocast/rocast/ctl/api"
)

func TestFeatures(t *testing.T) {
	d := startDaemon(t)
	golden(t, "features.txt", d.must(t, "features"))
	var list api.Features
	if d.mustJSON(t, &list, "features"); len(list.Features) != 3 || list.Features[1].Status != api.Missing {
		t.Errorf("%+v", list)
	}
}
