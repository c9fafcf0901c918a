// Package version says which build a program is.
package version

import (
	"runtime/debug"

	"github.com/rocast/rocast/ctl/api"
)

// Version and Commit are set by the Makefile's linker flags; else they are what the Go toolchain
// recorded.
var Version, Commit string

// Build is the running program's version.
func Build() api.Version {
	v := api.Version{Version: Version, Commit: Commit}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Go = info.GoVersion
	if v.Version == "" {
		v.Version = info.Main.Version
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" && v.Commit == "" {
			v.Commit = setting.Value
		}
	}
	return v
}
