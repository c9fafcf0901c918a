package peer

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/rocast/rocast/bench/workload"
	"github.com/rocast/rocast/dataplane/xsk"
)

//go:embed forward.c
var forwardC []byte

// compileC compiles forward.c once. The program stays open and its file is removed, so nothing is
// left behind.
var compileC = sync.OnceValues(func() (program *os.File, err error) {
	dir, err := os.MkdirTemp("", "rocbench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "forward")
	gcc := exec.Command("gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", binary, "-x", "c", "-", "-lpthread")
	gcc.Stdin = bytes.NewReader(forwardC)
	if output, err := gcc.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile forward.c: %w: %s", err, output)
	}
	return os.Open(binary)
})

// cSetup is struct setup of forward.c.
type cSetup struct {
	Magic, Workers, Receivers, Groups uint32
	Copy, Multi                       uint32
	FirstGroup                        uint32
	IfIndex                           [workload.MaxReceivers + 1]uint32
	PSN                               [3][256]uint32
	VA                                [8][256]uint32
}

const cMagic = 0x62656e63

func startC(memcpy bool) func(s Setting) (*Forwarder, error) {
	return func(s Setting) (*Forwarder, error) {
		program, err := compileC()
		if err != nil {
			return nil, err
		}
		steering, err := newSteering(s)
		if err != nil {
			return nil, err
		}
		sockets, err := steering.file()
		if err != nil {
			return nil, errors.Join(err, steering.close())
		}
		defer sockets.Close()
		cmd := exec.Command(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), program.Fd()))
		cmd.ExtraFiles = []*os.File{sockets}
		input, err := cInput(s, memcpy)
		if err != nil {
			return nil, errors.Join(err, steering.close())
		}
		p, err := launch(s, cmd, input)
		if err != nil {
			return nil, errors.Join(err, steering.close())
		}
		return p.forwarder(steering.close), nil
	}
}

// cInput returns the input of forward.c.
func cInput(s Setting, memcpy bool) ([]byte, error) {
	first := workload.GroupIP(0).As4()
	setup := cSetup{
		Magic: cMagic, Workers: uint32(s.Workers), Receivers: uint32(s.Receivers), Groups: uint32(s.Groups),
		FirstGroup: binary.BigEndian.Uint32(first[:]), PSN: s.PSNTables(), VA: s.VATables(),
	}
	if memcpy {
		setup.Copy = 1
	}
	if s.FrameBytes() > xsk.FrameBytes {
		setup.Multi = 1
	}
	for i, p := range s.Lab.Ports {
		setup.IfIndex[i] = uint32(p.Index)
	}
	b, err := binary.Append(nil, binary.NativeEndian, &setup)
	if err != nil {
		return nil, err
	}
	return binary.Append(b, binary.NativeEndian, s.Edits())
}
