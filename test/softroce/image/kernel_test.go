package image

import (
	"encoding/binary"
	"testing"
)

// bzImage wraps a payload as the kernel's makefile does, with two sectors of setup code.
func bzImage(payload string) []byte {
	const sectors, offset = 2, 100
	image := make([]byte, (sectors+1)*sectorBytes+offset)
	image[setupSectsOffset] = sectors
	binary.LittleEndian.PutUint32(image[payloadOffsetOffset:], offset)
	binary.LittleEndian.PutUint32(image[payloadLengthOffset:], uint32(len(payload)+sizeTrailerBytes))
	return append(append(image, payload...), "size"...)
}

func TestUnwrapFindsThePayload(t *testing.T) {
	const elf = "\x7fELF and so on"
	got, err := unwrap(t.Context(), bzImage(elf))
	if err != nil || string(got) != elf {
		t.Errorf("got %q, error %v", got, err)
	}
}

func TestUnwrapRefusesWhatIsCutShort(t *testing.T) {
	whole := bzImage("payload")
	for _, bytes := range []int{0, 0x200, len(whole) - sizeTrailerBytes - 1} {
		if _, err := unwrap(t.Context(), whole[:bytes]); err == nil {
			t.Errorf("%d of %d bytes were accepted", bytes, len(whole))
		}
	}
}
