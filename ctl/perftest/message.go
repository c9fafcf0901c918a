package perftest

import (
	"bytes"
	"errors"
	"strconv"
)

// The messages before the first key, in order. Their lengths are fixed.
const (
	versionBytes = 16 // "6.06", NUL padded
	sysDataBytes = 4  // int32, big endian; twice: bytes of the cycle buffer, bytes of a cache line
	mtuBytes     = 2  // enum ibv_mtu as a digit, and a NUL
)

const (
	// presentedVersion is the version shown to both sides: see doc.go.
	presentedVersion = "6.10"
	// oldestVersion: an older one is refused by every later one (check_version_compatibility).
	oldestVersion = 5.70
)

// kind is what a message from the first key on is.
type kind uint8

const (
	kindKey    kind = iota // key line: about a queue pair, or just to meet
	kindReport             // one of the five (or nine) numbers of a report
	kindDone               // farewell, never answered
)

const (
	reportBytes = 8
	farewell    = "done\x00" // up to version 6.16

	// Key lines of other lengths than keyBytes: without a GID, and with the address of the markers that
	// --data_validation writes to by atomics. Nothing is done with them but to say so.
	plainKeyBytes = 59
	tailKeyBytes  = 76 // without a GID; with one it is longer
)

// scan says what message b begins with and how long it is; 0 bytes: more of it is needed to tell. It cannot mistake a
// report for anything else: as a report, "done" and the beginning of a key are a size above 2^60 or a rate no link has.
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
	case b[52] == ':': // the first byte of a GID ends there
		return kindKey, keyBytes
	case b[58] == 0: // SRQN and end where a GID would be
		return kindKey, plainKeyBytes
	case areHex(b[50:59]): // longer than SRQN: another address
		return kindKey, tailKeyBytes
	default:
		return kindKey, keyBytes // a damaged one
	}
}

// beginsKey: a LID and its colon.
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
	errNotAVersion = errors.New("does not begin as perftest does")
	errOldVersion  = errors.New("speaks a version older than 5.70, which newer ones refuse")
)

func parseVersion(b []byte) (string, error) {
	text, padding, _ := bytes.Cut(b, []byte{0})
	version, err := strconv.ParseFloat(string(text), 64)
	switch {
	case err != nil, len(bytes.Trim(padding, "\x00")) > 0, !(version > 0 && version < 1000):
		return "", errNotAVersion
	case version < oldestVersion:
		return "", errOldVersion
	}
	return string(text), nil
}

func versionMessage() []byte {
	return append([]byte(presentedVersion), make([]byte, versionBytes-len(presentedVersion))...)
}

// mtu is enum ibv_mtu: 1 is 256 bytes, 5 is 4096.
type mtu uint8

func (m mtu) bytes() int { return 128 << m }

func (m mtu) message() []byte { return []byte{'0' + byte(m), 0} }

func parseMTU(b []byte) (mtu, error) {
	if len(b) != mtuBytes || b[0] < '1' || b[0] > '5' || b[1] != 0 {
		return 0, errors.New("names no path MTU")
	}
	return mtu(b[0] - '0'), nil
}
