package xsk

import (
	"fmt"
	"strings"
)

// Mode is the way that frames take between the device and the UMEM.
type Mode uint8

const (
	ModeAuto     Mode = iota // only in SocketConfig: zero-copy if the device can, else copy
	ModeZeroCopy             // the device reads and writes the UMEM itself
	ModeCopy                 // the kernel copies; the XDP program runs in the driver
	ModeGeneric              // the kernel copies; the XDP program runs on skbs, on any device
)

func (m Mode) String() string {
	switch m {
	case ModeAuto:
		return "auto"
	case ModeZeroCopy:
		return "zero-copy"
	case ModeCopy:
		return "copy"
	case ModeGeneric:
		return "generic"
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// Discipline says who owns a chunk while its frame is being sent. See the package comment.
type Discipline uint8

const (
	ByMode Discipline = iota // only in SocketConfig: Lend if the kernel copies, else Give
	Lend                     // the worker keeps the chunk; after Flush it may rewrite it
	Give                     // the kernel owns the chunk from Transmit until Complete returns it
)

func (d Discipline) String() string {
	switch d {
	case ByMode:
		return "by mode"
	case Lend:
		return "lend"
	case Give:
		return "give"
	}
	return fmt.Sprintf("Discipline(%d)", uint8(d))
}

// Obtained is what a socket obtained. SocketConfig is what was asked for.
type Obtained struct {
	Mode        Mode
	Discipline  Discipline
	MultiBuffer bool   // frames longer than FrameBytes, as several descriptors
	KickDescs   uint32 // descriptors that one kick sends in copy mode (XDP_MAX_TX_SKB_BUDGET)
	// BacklogDescs is how many descriptors of a full chunk the device may keep unsent in copy mode
	// (SO_SNDBUF). It is TxDescs with CAP_NET_ADMIN; without CAP_NET_ADMIN it is the number that
	// net.core.wmem_max allows.
	BacklogDescs uint32
}

func (o Obtained) String() string {
	words := []string{o.Mode.String(), o.Discipline.String()}
	if o.MultiBuffer {
		words = append(words, "multi-buffer")
	}
	return strings.Join(words, ", ")
}
