// Package edge is the XDP program of an edge, its loader, and the meaning of its maps. edge.c
// says what it does with a packet; the agent (cmd/rocast-edge/agent) decides what is in the maps.
//
// What is attached stays when the process ends: the maps and the link are pinned in a folder of the
// BPF file system, one for each interface. [Attach] takes over what is pinned there and replaces
// the program, so an upgrade loses no packet and no mapping. [Detach] leaves the interface as it
// was.
//
// edge_bpfel.go and .o are generated from edge.c (go generate, clang 14) and committed, like those
// of package bpf.
package edge

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I.." -type rocast_fate -type rocast_leg -type rocast_address -type rocast_mapping -type rocast_tables edge edge.c
