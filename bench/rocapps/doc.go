// Command rocapps measures what programs gain by a group, as the papers do from which rocast comes:
// WRITEs per second and their latency beside connections to one and to three receivers, broadcasts
// beside programs that pass messages on, consensus, and what lost packets cost all of them.
//
// Hosts have soft NICs, and links whose rate is far below what the CPU could send (site.go), so
// that the link is the limit, as on real hosts. Each row says how busy link and CPUs were.
//
//	for each section
//	    for each size or rate of loss
//	        for each method       a transfer (transfer.go) by the method's schedule (method.go);
//	                              all memory is compared at its end
//
// The result is a report in Markdown and JSON with SVG plots, and docs/evaluation.md if asked for.
package main
