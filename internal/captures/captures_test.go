package captures

import "testing"

func TestEveryFileReads(t *testing.T) {
	frames := 0
	for _, name := range Names() {
		f, err := Frames(name)
		if err != nil {
			t.Error(err)
		}
		frames += len(f)
	}
	if len(Names()) != 30 || frames != 1883 {
		t.Errorf("%d captures with %d frames", len(Names()), frames)
	}
}

func TestUnknownName(t *testing.T) {
	if _, err := Frames("nonesuch"); err == nil {
		t.Error("a capture that does not exist was read")
	}
}
