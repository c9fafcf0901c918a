package roce

import (
	"fmt"
	"strings"
	"testing"
)

func TestRKeysAreNotPrinted(t *testing.T) {
	const key = 0xC0FFEE
	for _, h := range []any{
		RETH{VA: 4096, RKey: key}, &RETH{VA: 4096, RKey: key},
		AtomicETH{VA: 4096, RKey: key}, &AtomicETH{VA: 4096, RKey: key},
		IETH{RKey: key}, &IETH{RKey: key},
		struct{ Inner RETH }{RETH{RKey: key}},
	} {
		for _, format := range []string{"%v", "%+v", "%s"} {
			text := strings.ToLower(fmt.Sprintf(format, h))
			if strings.Contains(text, "c0ffee") || strings.Contains(text, fmt.Sprint(key)) {
				t.Errorf("%s of %T prints the key: %s", format, h, text)
			}
		}
	}
}
