package perftest

import (
	"bytes"
	"errors"
	"strconv"
)

// These are the messages before the first key, in order. Each has a fixed length.
const (
	versionBytes = 16 // "6.06", NUL padded
	sysDataBytes = 4  // int32, big endian; sent twice: bytes of the cycle buffer, then bytes of a cache line
	mtuBytes     = 2  // enum ibv_mtu as one digit, and a NUL
)

const (
	// presentedVersion is the version that both sides receive; doc.go has the reason.
	presentedVersion = "6.10"
	// oldestVersion is the oldest version that later versions accept (check_version_compatibility).
	oldestVersion = 5.70
)

// kind is the kind of a message, from the first key line on.
type kind uint8

const (
	kindKey    kind = iota // key line: describes a queue pair, or lets the sides wait for each other
	kindReport             // one of the five (or nine) numbers of a report
	kindDone               // farewell; it is never answered
)

const (
	reportBytes = 8
	farewell    = "done\x00" // up to version 6.16

	// These are the lengths of key lines that are not keyBytes long: a key line without a GID, and
	// a key line with the address of the markers that --data_validation writes by atomics. Such a
	// key line is refused with a sentence that names the reason.
	plainKeyBytes = 59
	tailKeyBytes  = 76 // length without a GID; longer with a GID
)

// scan returns the kind and the length of the message at the beginning of b. A length of 0 means
// that more bytes are needed. scan cannot mistake a report for another kind: read as a report,
// "done" or the beginning of a key is a size above 2^60 or a rate that no link has.
func scan(b []byte) (k kind, length int) {
	switch {
	case len(b) < len(farewell):
		return 0, 0
	case string(b[:len(farewell)]) == farewell:
		return kindDone, len(farewell)
	case !beginsKey(b):
		return kindReport, reportBytes
	case len(b) < plainKeyBytes:
		return kindKey, 0
	case b[58] == 0: // the line has the SRQN and its end in place of a GID
		return kindKey, plainKeyBytes
	case areHex(b[50:59]): // longer than an SRQN: another address
		return kindKey, tailKeyBytes
	default:
		return kindKey, keyBytes // with a GID: there is a colon after its first byte; or a damaged key line
	}
}

// beginsKey reports whether b begins with a LID and a colon.
func beginsKey(b []byte) bool { return areHex(b[:4]) && b[4] == ':' }

func areHex(b []byte) bool {
	for _, c := range b {
		if _, ok := hexDigit(c); !ok {
			return false
		}
	}
	return true
}

var (
	errNotAVersion = errors.New("does not begin like a message of perftest")
	errOldVersion  = errors.New("speaks a version older than 5.70, which newer versions refuse")
)

func parseVersion(b []byte) (string, error) {
	text, padding, _ := bytes.Cut(b, []byte{0})
	version, _ := strconv.ParseFloat(string(text), 64) // 0 or infinite if it is no number
	switch {
	case len(bytes.Trim(padding, "\x00")) > 0, !(version > 0 && version < 1000):
		return "", errNotAVersion
	case version < oldestVersion:
		return "", errOldVersion
	}
	return string(text), nil
}

func versionMessage() []byte {
	return append([]byte(presentedVersion), make([]byte, versionBytes-len(presentedVersion))...)
}

// mtu is an enum ibv_mtu: 1 means 256 bytes, 5 means 4096 bytes.
type mtu uint8

func (m mtu) bytes() int { return 128 << m }

func (m mtu) message() []byte { return []byte{'0' + byte(m), 0} }

func parseMTU(b []byte) (mtu, error) {
	if len(b) != mtuBytes || b[0] < '1' || b[0] > '5' || b[1] != 0 {
		return 0, errors.New("names no path MTU")
	}
	return mtu(b[0] - '0'), nil
}
