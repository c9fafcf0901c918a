package report

import (
	"testing"
	"time"
)

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   Spread
	}{
		{nil, Spread{}},
		{[]float64{7}, Spread{7, 7, 7}},
		{[]float64{9, 1}, Spread{5, 1, 9}},
		{[]float64{5, 100, 1}, Spread{5, 1, 100}},
		{[]float64{4, 1, 3, 2}, Spread{2.5, 1, 4}},
	} {
		before := append([]float64(nil), c.values...)
		if got := spreadOf(c.values); got != c.want {
			t.Errorf("%v: got %+v, want %+v", c.values, got, c.want)
		}
		for i := range before {
			if c.values[i] != before[i] {
				t.Fatalf("%v were rearranged to %v: rounds would be compared with other rounds", before, c.values)
			}
		}
	}
}

func TestQuantiles(t *testing.T) {
	var latencies []time.Duration
	for i := 1000; i > 0; i-- {
		latencies = append(latencies, time.Duration(i)*time.Microsecond)
	}
	if got, want := Quantiles(latencies), (LatencyQuantile{500, 900, 990, 999}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := Quantiles([]time.Duration{1500}), (LatencyQuantile{1.5, 1.5, 1.5, 1.5}); got != want {
		t.Errorf("of one value: got %+v, want %+v", got, want)
	}
}

func rate(values ...uint64) *Cell {
	c := &Cell{}
	for _, v := range values {
		c.Samples = append(c.Samples, Sample{Seconds: 1, Copies: v * 1000, ProcessCPU: 0.25, KernelCPU: 0.25})
	}
	return c
}

// A machine that gets slower from round to round leaves the ratio alone, which is not so for the
// ratio of medians.
func TestRatioIsWithinRounds(t *testing.T) {
	bar, c := rate(100, 10, 50), rate(200, 20, 150)
	if got := ratio(c, bar, (*Sample).Rate); got != (Spread{2, 2, 3}) {
		t.Errorf("got %+v", got)
	}
	if got := ratio(rate(200), rate(0, 10), (*Sample).Rate); got != (Spread{}) {
		t.Errorf("of a bar that did nothing: got %+v", got)
	}
	if got := ratio(rate(200, 30), rate(0, 10), (*Sample).Rate); got.Median != 3 {
		t.Errorf("a round without the bar counts: got %+v", got)
	}
}

func TestFiguresOfASample(t *testing.T) {
	s := Sample{Seconds: 2, Copies: 6_000_000, ProcessCPU: 1, KernelCPU: 0.5}
	if s.Rate() != 3000 || s.PerCPU() != 4000 || s.PerProcessCPU() != 6000 {
		t.Errorf("got %v, %v, %v", s.Rate(), s.PerCPU(), s.PerProcessCPU())
	}
	if kernel := (Sample{Copies: 1, KernelCPU: 1}); kernel.PerProcessCPU() != 0 {
		t.Errorf("a forwarder without a process has the figure %v for it", kernel.PerProcessCPU())
	}
}

func TestMarks(t *testing.T) {
	good := Sample{Seconds: 10, HostsCPU: 6, Sent: 10_000, Disturbed: 0.1}
	for _, c := range []struct {
		change func(*Sample)
		want   string
	}{
		{func(*Sample) {}, ""},
		{func(s *Sample) { s.HostsCPU = 9.9 }, "starved"},
		{func(s *Sample) { s.Disturbed = 0.5 }, "disturbed"},
		{func(s *Sample) { s.Resent = 100 }, "lossy"},
		{func(s *Sample) { s.Resent = 5 }, ""},
	} {
		s := good
		c.change(&s)
		marks := (&Cell{Samples: []Sample{s}}).marks()
		if len(marks) > 1 || c.want == "" && len(marks) > 0 || c.want != "" && (len(marks) == 0 || marks[0] != c.want) {
			t.Errorf("%+v: got %v, want %q", s, marks, c.want)
		}
	}
}
