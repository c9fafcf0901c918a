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
	if len(Names()) != 46 || frames != 2923 {
		t.Errorf("%d captures with %d frames", len(Names()), frames)
	}
	for _, name := range Reports() {
		if text, err := Report(name); err != nil || text == "" {
			t.Errorf("report %s: %d bytes, %v", name, len(text), err)
		}
	}
}

func TestUnknownName(t *testing.T) {
	if _, err := Frames("nonesuch"); err == nil {
		t.Error("a capture nobody took was read")
	}
	if _, err := Report("nonesuch"); err == nil {
		t.Error("a report nobody wrote was read")
	}
}
