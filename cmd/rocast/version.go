package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/version"
)

// versions holds the versions of this program, of the daemon and of the kernel.
type versions struct {
	Client api.Version  `json:"rocast"`
	Daemon *api.Version `json:"rocastd"` // null: the daemon does not answer
	Kernel kernel       `json:"kernel"`
}

// kernel is the kernel of this machine, and the daemon's.
type kernel struct {
	Release string   `json:"release"`
	Lacks   []string `json:"lacks"` // features that the daemon would use; null: the daemon does not answer
}

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program, and of the daemon if one answers",
		Long: `Print the version of this program, and, if a daemon answers, the daemon's version and which kernel features it lacks.
rocast features says what happens without them.`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versions{Client: version.Build(), Kernel: kernel{Release: kernelRelease()}}
			daemon, err := a.client().Version(cmd.Context())
			e := (*api.Error)(nil)
			switch {
			case err == nil:
				list, err := a.client().Features(cmd.Context())
				if err != nil {
					return err
				}
				v.Daemon, v.Kernel.Lacks = &daemon, lacking(list)
			case !errors.As(err, &e) || e.Kind != api.Unreachable:
				return err
			}
			return a.print(v, func(w io.Writer) { printVersions(w, v, err) })
		},
	}
}

func printVersions(w io.Writer, v versions, unreachable error) {
	row(w, "rocast", build(v.Client))
	if v.Daemon == nil {
		row(w, "rocastd", unreachable)
		row(w, "kernel", v.Kernel.Release)
		return
	}
	row(w, "rocastd", build(*v.Daemon))
	features := "has all features"
	if len(v.Kernel.Lacks) > 0 {
		features = "lacks " + strings.Join(v.Kernel.Lacks, ", ")
	}
	row(w, "kernel", v.Kernel.Release+", "+features)
}

// build describes a build: v1.2.0 (commit 0123456789ab, go1.26.0).
func build(v api.Version) string {
	made := v.Go
	if v.Commit != "" {
		made = fmt.Sprintf("commit %.12s, %s", v.Commit, v.Go)
	}
	return fmt.Sprintf("%s (%s)", v.Version, made)
}

// lacking returns the names of the features that are not known to be there.
func lacking(list api.Features) []string {
	names := []string{}
	for _, f := range list.Features {
		if f.Status != api.Available {
			names = append(names, f.Name)
		}
	}
	return names
}

// kernelRelease returns what uname -r prints.
func kernelRelease() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "unknown: " + err.Error()
	}
	return unix.ByteSliceToString(name.Release[:])
}
