package report

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Spread is the median of some rounds and their extremes.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// spreadOf returns the zero Spread if there are no values.
func spreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	values = slices.Clone(values)
	slices.Sort(values)
	return Spread{Median: median(values), Min: values[0], Max: values[len(values)-1]}
}

// median of sorted values; of an even number the mean of the middle two.
func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// quantile returns the smallest of sorted values that is not less than a share q of them (nearest
// rank).
func quantile[T cmp.Ordered](sorted []T, q float64) T {
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

// Median of values in any order; 0 if there are none.
func Median(values []float64) float64 { return spreadOf(values).Median }

// Quantile sorts latencies and returns one of their quantiles; 0 if there are none.
func Quantile(latencies []time.Duration, q float64) time.Duration {
	if len(latencies) == 0 {
		return 0
	}
	slices.Sort(latencies)
	return quantile(latencies, q)
}

// Quantiles sorts latencies and returns their quantiles. There must be at least one.
func Quantiles(latencies []time.Duration) LatencyQuantile {
	slices.Sort(latencies)
	at := func(q float64) float64 { return float64(quantile(latencies, q)) / float64(time.Microsecond) }
	return LatencyQuantile{P50: at(0.5), P90: at(0.9), P99: at(0.99), P999: at(0.999)}
}

func over(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// ratio compares two contestants by a figure, round by round. A round does not count if one of them
// has no sample, or if the figure of the second one is zero.
func ratio(c, bar *Cell, figure func(*Sample) float64) Spread {
	var ratios []float64
	for i := range min(len(c.Samples), len(bar.Samples)) {
		if b := figure(&bar.Samples[i]); b > 0 {
			ratios = append(ratios, figure(&c.Samples[i])/b)
		}
	}
	return spreadOf(ratios)
}

// Summarize computes the fields that are derived from samples.
func (r *Report) Summarize() {
	for i := range r.Throughput {
		for k := range r.Throughput[i].Cells {
			c := &r.Throughput[i].Cells[k]
			c.PerCPU = c.spread((*Sample).PerCPU)
			c.Rate = c.spread((*Sample).Rate)
		}
	}
	for i := range r.Latency {
		l := &r.Latency[i]
		of := func(figure func(*LatencyRound) float64) float64 {
			var values []float64
			for k := range l.Rounds {
				values = append(values, figure(&l.Rounds[k]))
			}
			return spreadOf(values).Median
		}
		l.Medians = LatencyQuantile{
			P50:  of(func(q *LatencyRound) float64 { return q.P50 }),
			P90:  of(func(q *LatencyRound) float64 { return q.P90 }),
			P99:  of(func(q *LatencyRound) float64 { return q.P99 }),
			P999: of(func(q *LatencyRound) float64 { return q.P999 }),
		}
	}
}

func (c *Cell) spread(figure func(*Sample) float64) Spread {
	var values []float64
	for i := range c.Samples {
		values = append(values, figure(&c.Samples[i]))
	}
	return spreadOf(values)
}

// share returns the sum of a figure over all rounds, divided by the sum of another figure.
func (c *Cell) share(a, b func(*Sample) float64) float64 {
	var sumA, sumB float64
	for i := range c.Samples {
		sumA += a(&c.Samples[i])
		sumB += b(&c.Samples[i])
	}
	return over(sumA, sumB)
}

// Find returns the cell of a contestant, or nil.
func (r *Row) Find(peer string) *Cell {
	for i := range r.Cells {
		if r.Cells[i].Peer == peer {
			return &r.Cells[i]
		}
	}
	return nil
}
