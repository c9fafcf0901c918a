// Command rocscale runs the experiments of the papers in simulation, on fat trees of 1,024 and
// 16,384 hosts (bench/scale), and writes a report in Markdown and JSON with plots, beside what the
// papers state. make sim-scale runs it.
//
// The tables are the same every time; only the section about the simulator depends on the machine.
package main
