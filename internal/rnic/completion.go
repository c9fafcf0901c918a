package rnic

import "fmt"

// Status is how a work request ended: ibv_wc_status, named as ibv_wc_status_str prints it.
type Status uint8

const (
	Success Status = iota
	RemoteInvalidRequest
	RemoteAccess
	RemoteOperational
	RetryExceeded
	RNRRetryExceeded
	WRFlushed
	FatalError // the peer sent a reserved syndrome
)

var statusNames = [...]string{
	Success:              "success",
	RemoteInvalidRequest: "remote invalid request error",
	RemoteAccess:         "remote access error",
	RemoteOperational:    "remote operation error",
	RetryExceeded:        "transport retry counter exceeded",
	RNRRetryExceeded:     "RNR retry counter exceeded",
	WRFlushed:            "Work Request Flushed Error",
	FatalError:           "fatal error",
}

// String is the text libibverbs has for the status.
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("Status(%d)", uint8(s))
}

// Operation is what a work request asked for, or the message by which a receive was taken.
type Operation uint8

const (
	Write Operation = iota
	WriteImm
	Send
	SendImm
	Read
	Recv         // a receive that a SEND took
	RecvWriteImm // a receive that a WRITE with immediate took
)

var operationNames = [...]string{
	Write: "write", WriteImm: "write-imm", Send: "send", SendImm: "send-imm", Read: "read",
	Recv: "recv", RecvWriteImm: "recv-write-imm",
}

// String names the operation.
func (o Operation) String() string {
	if int(o) < len(operationNames) {
		return operationNames[o]
	}
	return fmt.Sprintf("Operation(%d)", uint8(o))
}

// takesReceive reports whether the message uses up one of the peer's receives.
func (o Operation) takesReceive() bool { return o == WriteImm || o == Send || o == SendImm }

func (o Operation) isReceive() bool { return o == Recv || o == RecvWriteImm }

// Completion reports the end of one work request.
type Completion struct {
	WRID   uint64
	Status Status
	Op     Operation // Recv, if a receive was flushed
	HasImm bool      // receives only
	Imm    uint32
	Bytes  uint32 // that were moved, if Status is Success
}

// String is one line for logs and failed tests.
func (c Completion) String() string {
	text := fmt.Sprintf("wr %d %s: %s, %d bytes", c.WRID, c.Op, c.Status, c.Bytes)
	if c.HasImm {
		text += fmt.Sprintf(", imm %#x", c.Imm)
	}
	return text
}
