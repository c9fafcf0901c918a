// Command rocbench measures rocast beside the forwarders that a lab would use in its place, in one
// run on one machine: how many copies each makes for a CPU-second of the switch, and for a second;
// how long a packet takes to the last receiver; what creating and removing groups costs, and what
// that does to groups that run.
//
// Everything runs in network namespaces over veth, with two CPUs: the switch has one, the source
// and the receivers have the other. veth carries about a million packets for each second and core
// whatever the program, so the ratios are the result, and the absolute figures are not. How CPU
// time is attributed stands in package lab, what the source and the receivers do in package hosts,
// and who takes part in package peer.
//
//	for each setting              payload, receivers, groups, workers
//	    for each round
//	        for each contestant   a new lab; start; verify 300 copies byte by byte; measure
//
// A contestant that delivers one wrong byte has no figure in that setting. The result is a report
// in Markdown and JSON with SVG plots.
package main
