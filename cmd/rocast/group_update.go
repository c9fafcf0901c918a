package main

import (
	"io"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

func (a *app) groupUpdate() *cobra.Command {
	return a.fromFile(&cobra.Command{
		Use:   "update -f FILE",
		Short: "Let receivers join and leave a running group, or change its memory",
		Long: `Let receivers join and leave a running group, or change its memory. FILE describes the whole group after the update. Only its
receivers, or its memory and where the receivers have it, may differ from the running group. rocast region changes one region.

A new receiver gets data from the source's next message on: its psn is the PSN that its QP expects then. A receiver that the
file leaves out gets no more data, and the group does not wait for it. A receiver whose QP was set up again, or that was
evicted or fell behind, joins again by two updates: one without it, and then one with it.`,
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
