package roce

import (
	"bytes"
	"testing"
)

// The three bytes may be the last ones of a packet.
func TestUint24TakesThreeBytes(t *testing.T) {
	b := make([]byte, 3)
	putUint24(b, 0x010203)
	if !bytes.Equal(b, []byte{1, 2, 3}) || uint24(b) != 0x010203 {
		t.Errorf("%x, read as %#x", b, uint24(b))
	}
}
