package roce

import "errors"

// The reasons for which a frame is refused. They are package variables, so that refusing a frame
// allocates nothing. The data path turns each into a counted reason.
var (
	ErrTruncated = errors.New("roce: frame or header cut short")
	ErrNotIP     = errors.New("roce: neither IPv4 nor IPv6 behind at most two VLAN tags")
	ErrFragment  = errors.New("roce: IP fragment")
	ErrIPOptions = errors.New("roce: IPv4 options or IPv6 extension headers")
	ErrNotUDP    = errors.New("roce: not UDP")
	ErrNotRoCE   = errors.New("roce: UDP destination port is not 4791")
	ErrLength    = errors.New("roce: IP, UDP and header lengths disagree")
	ErrTVer      = errors.New("roce: transport header version is not 0")
	ErrOpcode    = errors.New("roce: unknown opcode")
)
