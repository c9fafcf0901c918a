package main

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/api"
)

// sameEverywhere replaces what differs between machines.
func sameEverywhere(text string) string {
	return strings.NewReplacer(kernelRelease(), "6.12.0", runtime.Version(), "go1.26.0").Replace(text)
}

func TestVersion(t *testing.T) {
	d := startDaemon(t)
	golden(t, "version.txt", sameEverywhere(d.must(t, "version")))
	var v versions
	if d.mustJSON(t, &v, "version"); v.Client.Version != "v0-test" || v.Daemon == nil || v.Daemon.Version != "v0-test" || v.Kernel.Release != kernelRelease() {
		t.Errorf("%+v", v)
	}
	if want := []string{"multi-buffer", "kick-budget"}; !slices.Equal(v.Kernel.Lacks, want) {
		t.Errorf("the kernel lacks %q, want %q", v.Kernel.Lacks, want)
	}
}

// The version is what people ask for when nothing else works.
func TestVersionWithoutADaemon(t *testing.T) {
	d := &daemon{socket: "/nowhere"}
	golden(t, "version_alone.txt", sameEverywhere(d.must(t, "version")))
	var v versions
	if d.mustJSON(t, &v, "version"); v.Daemon != nil || v.Kernel.Lacks != nil {
		t.Errorf("%+v", v)
	}
}

func TestAKernelThatLacksNothingIsSaid(t *testing.T) {
	var out strings.Builder
	printVersions(&out, versions{Daemon: new(api.Version), Kernel: kernel{Release: "6.18.0", Lacks: []string{}}}, nil)
	if want := "kernel\t6.18.0, has all features\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("got %q, want %q at the end", out.String(), want)
	}
}
