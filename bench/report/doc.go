// Package report has the results of a run of the benchmark, and computes and writes its report: a
// JSON file with every sample, a Markdown file with the tables, and an SVG file for each plot.
//
// Every figure is a median over rounds in which all contestants ran in turn. A ratio is the median
// of the rounds' ratios and not a ratio of medians, so that a machine that gets slower from round
// to round changes it little.
//
// The package reads no clock and runs nothing. Start reading at Report.
package report
