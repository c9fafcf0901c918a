// Package edges decides which receivers of a group share a leg, and what their edges are to map.
//
// An edge is a program at a receiver's host (cmd/rocast-edge). It maps the shared copies of a
// group, which the network has replicated, to the receiver's queue pair. A receiver shares as soon
// as its edge has confirmed the mapping, and two or more of them are behind one port. Whether an
// edge works is not decided here: the data path sees who acknowledges what (dataplane/edges.go).
//
// A mapping never changes. What would change one, or withdraw a receiver, ends its [generation]:
// the copies have a QPN of their own in each. So nothing has to happen at one moment: an edge that
// is late drops the copies of a generation that it does not know. No QPN is used twice, also not
// after a restart (qpns.go).
//
//	Share ─▶ a generation for each port ─▶ Ask: the mappings of a host ─▶ its edge
//	  ▲                                                                      │
//	  └── groups to share anew ◀─ Ask: the edge has loaded them ◀────────────┘
//
// The [Book] is a step function: it reads no clock, waits for nothing and does no I/O. It draws
// from [QPNs], which have stored before what they need. Read first: book.go, then share.go.
package edges
