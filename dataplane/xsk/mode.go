package xsk

import (
	"fmt"
	"strings"
)

// Mode is how frames get between the device and the UMEM.
type Mode uint8

const (
	ModeAuto     Mode = iota // only asked, never obtained: zero-copy where the device can, copy elsewhere
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

// Discipline says whose a chunk is while its frame is being sent. doc.go argues both.
type Discipline uint8

const (
	ByMode Discipline = iota // only asked, never obtained: Lend where the kernel copies, Give elsewhere
	Lend                     // the chunk stays the worker's; it may be rewritten when Flush returns
	Give                     // the chunk is the kernel's from Transmit until Complete returns it
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

// Obtained is what a socket got, next to what its SocketConfig asked for.
type Obtained struct {
	Mode        Mode
	Discipline  Discipline
	MultiBuffer bool   // frames longer than FrameBytes, as several descriptors
	KickDescs   uint32 // descriptors one kick sends in copy mode (XDP_MAX_TX_SKB_BUDGET)
	// BacklogDescs is how many descriptors the device may keep unsent in copy mode, as long as each is a full chunk
	// (SO_SNDBUF). It is TxDescs with CAP_NET_ADMIN, and without it what net.core.wmem_max allows.
	BacklogDescs uint32
}

func (o Obtained) String() string {
	words := []string{o.Mode.String(), o.Discipline.String()}
	if o.MultiBuffer {
		words = append(words, "multi-buffer")
	}
	return strings.Join(words, ", ")
}
