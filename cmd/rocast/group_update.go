package main

import (
	"io"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

func (a *app) groupUpdate() *cobra.Command {
	return a.fromFile(&cobra.Command{
		Use:   "update -f FILE",
		Short: "Let receivers join and leave a running group",
		Long: `Let receivers join and leave a running group. FILE describes the group as it is to be; what it says beside its receivers has
to be what the running group has.

A receiver that is new takes part from the source's next message on: its psn is what its QP expects then. One that the file
leaves out gets no more data, and nobody waits for it. One whose QP was set up anew, or that was evicted or fell behind,
joins again by two updates: one without it, one with it.`,
	}, func(cmd *cobra.Command, file string, text []byte) error {
		g, err := a.client().UpdateGroup(cmd.Context(), nameIn(text), text)
		if err != nil {
			return inFile(file, err)
		}
		return a.print(g, func(w io.Writer) { printMade(w, g, "updated") })
	})
}

// nameIn returns the group name in a group file. For a file without a name it returns a name that
// no group can have, so that the daemon reports the error in the file.
func nameIn(text []byte) string {
	var file struct {
		Name string `yaml:"name"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil || file.Name == "" {
		return "-"
	}
	return file.Name
}
