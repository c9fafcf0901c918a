// Package mpi tests librocast-mpi (host/mpi) on one machine, with Open MPI and with MPICH. Every
// rank is a node of its own there, and fake/librocast.c stands in for librocast: groups are shared
// memory, and fail when a test wants it.
//
// The programs broadcast (programs/check.c, programs/panel.c). They run in the lab of test/softroce
// too, on several hosts, with librocast and the box.
package mpi
