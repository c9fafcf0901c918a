package xsk

import (
	"errors"
	"testing"
)

func TestFeaturesAnswerTheSameEachTime(t *testing.T) {
	for _, f := range Features() {
		err := f.Supported()
		t.Logf("%s (kernel >= %s): %v", f.Name, f.Kernel, err)
		if again := f.Supported(); again != err {
			t.Errorf("%s: %v, then %v", f.Name, err, again)
		}
		if f.Fallback == "" {
			t.Errorf("%s: says not what happens without it", f.Name)
		}
	}
}

func TestUnsupportedIsOnlyTheErrnoOfAnOlderKernel(t *testing.T) {
	old, other := errors.New("old kernel"), errors.New("no permission")
	if err := unsupported(old, old); !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, old) {
		t.Errorf("got %v", err)
	}
	if err := unsupported(other, old); errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
	if err := unsupported(nil, old); err != nil {
		t.Errorf("got %v", err)
	}
}
