package main

import "testing"

func TestVersion(t *testing.T) {
	d := startDaemon(t)
	golden(t, "version.txt", d.must(t, "version"))
	var v versions
	if d.mustJSON(t, &v, "version"); v.Client.Version != "v0-test" || v.Daemon == nil || v.Daemon.Version != "v0-test" {
		t.Errorf("%+v", v)
	}
}

// The version is what people ask for when nothing else works.
func TestVersionWithoutADaemon(t *testing.T) {
	d := &daemon{socket: "/nowhere"}
	golden(t, "version_alone.txt", d.must(t, "version"))
	var v versions
	if d.mustJSON(t, &v, "version"); v.Daemon != nil {
		t.Errorf("%+v", v)
	}
}
