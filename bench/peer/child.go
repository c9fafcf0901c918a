package peer

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// asForwarder is the environment variable that makes this program run one of the forwarders in Go.
const asForwarder = "ROCBENCH_FORWARDER"

var inGo = map[string]func(spec *json.Decoder) (stop func() error, err error){
	"rocast": runRocast,
	"bare":   runBare,
}

// RunAsForwarder must be called first in main, and in TestMain. It does not return in a process
// that launchSelf started.
func RunAsForwarder() {
	name := os.Getenv(asForwarder)
	if name == "" {
		return
	}
	if err := runAsForwarder(name); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runAsForwarder(name string) error {
	run := inGo[name]
	if run == nil {
		return fmt.Errorf("%s=%s is not the name of a forwarder", asForwarder, name)
	}
	stop, err := run(json.NewDecoder(os.Stdin))
	if err != nil {
		return err
	}
	if _, err := fmt.Println("ready"); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until it is closed
	return stop()
}

// launchSelf starts this program as a forwarder. Each thread that spins occupies a processor of the
// Go runtime. The runtime counts CPUs by affinity and would have no other processor, so GOMAXPROCS
// is set.
func launchSelf(s Setting, name string, spec any, files ...*os.File) (*process, error) {
	input, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), asForwarder+"="+name, fmt.Sprintf("GOMAXPROCS=%d", s.Workers+2))
	cmd.ExtraFiles = files
	return launch(s, cmd, input)
}
