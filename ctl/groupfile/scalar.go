package groupfile

import (
	"fmt"
	"math"
	"net/netip"
	"regexp"

	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/roce"
)

const (
	max24        = 1<<24 - 1
	multicastQPN = max24 // IBTA vol 1: the dest QPN of a multicast packet
	// ClassE is the first byte of the reserved IPv4 addresses (RFC 1112). They include
	// 255.255.255.255.
	ClassE = 240
)

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// CheckName refuses what is no group name. The name becomes a file name in the state directory and
// a word in commands.
func CheckName(text string) error {
	if nameForm.MatchString(text) {
		return nil
	}
	return fmt.Errorf("%q is not a valid group name; write 1 to 63 letters, digits, '.', '_' or '-', a letter or digit first", text)
}

func name(v yamldoc.Value) (string, error) {
	text, err := v.Text()
	if err != nil {
		return text, err
	}
	if err := CheckName(text); err != nil {
		return text, v.Errorf("%v", err)
	}
	return text, nil
}

// Unicast reads an IP. It refuses addresses that a host drops as a source address
// (fib_validate_source, ip6_rcv). It also refuses link-local addresses, because a NIC does not
// store which link such an address belongs to.
func Unicast(v yamldoc.Value) (netip.Addr, error) {
	addr, err := v.Addr()
	switch {
	case err != nil:
		return addr, err
	case addr.Is4() && addr.IsMulticast():
		return addr, v.Errorf("%v is class D (multicast): hosts drop the ACKs that come from such an address; "+
			"write a unicast address of the members' subnet", addr)
	case addr.IsMulticast():
		return addr, v.Errorf("%v is multicast: hosts drop the ACKs that come from such an address; write a "+
			"unicast address of the members' subnet", addr)
	case addr.IsUnspecified() || addr.IsLoopback() || addr.Is4() && (addr.As4()[0] == 0 || addr.As4()[0] >= ClassE):
		return addr, v.Errorf("%v is not an address that a host can have; write a unicast address", addr)
	case addr.Is6() && addr.IsLinkLocalUnicast():
		return addr, v.Errorf("%v is link-local, and a link-local address has no route; write a global or unique "+
			"local address", addr)
	}
	return addr, nil
}

// pathMTU reads an MTU that a queue pair can have (enum ibv_mtu).
func pathMTU(v yamldoc.Value) (int, error) {
	switch n, _ := v.Uint(math.MaxUint64); n { // 0 after an error
	case 256, 512, 1024, 2048, 4096:
		return int(n), nil
	}
	return 0, v.Errorf("is not a path MTU; write 256, 512, 1024, 2048 or 4096, the path MTU of the members' QPs")
}

func psn(v yamldoc.Value) (roce.PSN, error) {
	n, err := v.Uint(max24)
	return roce.PSN(n), err
}

// remoteQPN reads a QPN that only the group uses. 1 is allowed: connection management (QP1) uses
// QPN 1 with a different opcode.
func remoteQPN(v yamldoc.Value) (roce.QPN, error) {
	n, err := v.Uint(max24)
	if err == nil && (n == 0 || n == multicastQPN) {
		err = v.Errorf("is %#x, to which no RC queue pair can send; write a number from 1 to %d", n, multicastQPN-1)
	}
	return roce.QPN(n), err
}

// hostQPN reads the number of an RC queue pair on a host.
func hostQPN(v yamldoc.Value) (roce.QPN, error) {
	n, err := v.Uint(max24)
	if err == nil && (n <= 1 || n == multicastQPN) {
		err = v.Errorf("is %#x, which is reserved for management and multicast; write the number of the host's QP", n)
	}
	return roce.QPN(n), err
}

// choice reads a word of a fixed set. The error of parse lists the set.
func choice[T any](parse func(string) (T, error)) func(yamldoc.Value) (T, error) {
	return func(v yamldoc.Value) (value T, err error) {
		text, err := v.Text()
		if err != nil {
			return value, err
		}
		if value, err = parse(text); err != nil {
			err = v.Wrap(err)
		}
		return value, err
	}
}
