// Command rocbench compares rocast with the forwarders that a lab would use instead, in one run on
// one machine. It measures the copies for each CPU-second of the switch and for each second, the
// time of a packet to the last receiver, the cost of creating and removing groups, the effect of
// that on running groups, and how long a daemon is away that is killed and started again.
//
// Everything runs in network namespaces over veth, with two CPUs: the switch has one, the source
// and the receivers have the other. veth carries about a million packets for each second and core,
// with any program, so the ratios are the result, and the absolute figures are not. Package lab
// explains how CPU time is attributed, package hosts has the source and the receivers, and package
// peer has the contestants.
//
//	for each setting              payload, receivers, groups, workers
//	    for each round
//	        for each contestant   a new lab; start; verify 300 copies byte by byte; measure
//
// A contestant that delivers one wrong byte has no figure in that setting. The result is a report
// in Markdown and JSON with SVG plots.
package main
