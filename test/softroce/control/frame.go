package control

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// Kind says what the payload of a frame is. The first kinds go to the guest, and the others come
// from it.
type Kind uint8

const (
	KindStart    Kind = iota + 1 // JSON of Command
	KindStdin                    // bytes
	KindStdinEOF                 // empty
	KindSignal                   // one byte, the signal's number
	KindHello                    // JSON of Hello, process 0, once
	KindStdout                   // bytes
	KindStderr                   // bytes
	KindExit                     // JSON of Exit, the last frame of its process
)

// PortName is the name of the virtio serial port. QEMU gets it on its command line, and the agent
// looks it up.
const PortName = "rocast.control"

// PortVariable is the environment variable that has the number of an open file, if the agent serves
// this in place of the port.
const PortVariable = "ROCAST_CONTROL_FD"

const (
	headerBytes = 9 // kind 1, process 4, payload length 4

	// maxPayloadBytes bounds what a reader allocates for one frame. Writers send much smaller
	// frames.
	maxPayloadBytes = 1 << 20
	chunkBytes      = 32 << 10
)

// Command is a process to run in the guest.
type Command struct {
	Args []string `json:"args"`
	Env  []string `json:"env,omitempty"` // in addition to the agent's
}

// Exit is how a process ended.
type Exit struct {
	Code   int    `json:"code"`             // -1: it did not exit by itself
	Signal string `json:"signal,omitempty"` // the signal that ended it
	Error  string `json:"error,omitempty"`  // why it was not started
}

// OK reports whether the process ran and returned zero.
func (e Exit) OK() bool { return e == Exit{} }

func (e Exit) String() string {
	switch {
	case e.Error != "":
		return e.Error
	case e.Signal != "":
		return "killed by " + e.Signal
	}
	return fmt.Sprintf("exit status %d", e.Code)
}

// Hello is the first frame of the agent, after it has loaded the modules.
type Hello struct {
	Kernel string `json:"kernel"`
	Error  string `json:"error,omitempty"` // what failed in the setup
}

type frame struct {
	kind    Kind
	process uint32
	payload []byte
}

func readFrame(r io.Reader) (frame, error) {
	var header [headerBytes]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return frame{}, err
	}
	size := binary.BigEndian.Uint32(header[5:])
	if size > maxPayloadBytes {
		return frame{}, fmt.Errorf("control frame of %d bytes exceeds %d", size, maxPayloadBytes)
	}
	f := frame{kind: Kind(header[0]), process: binary.BigEndian.Uint32(header[1:]), payload: make([]byte, size)}
	_, err := io.ReadFull(r, f.payload)
	return f, err
}

func appendFrame(b []byte, f frame) []byte {
	b = append(b, byte(f.kind))
	b = binary.BigEndian.AppendUint32(b, f.process)
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.payload)))
	return append(b, f.payload...)
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot happen: only plain structs of this package are marshalled
	}
	return b
}
