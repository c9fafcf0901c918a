// Package rnic is a reliable-connection queue pair in software: requester and responder as one state machine without
// I/O, clock or goroutine. Tests, demos and the simulator use it where a real host would have an RDMA NIC.
//
// It behaves as Soft-RoCE (rxe, Linux 6.1 and 6.12) was read and recorded to behave, down to what makes rxe hang: the
// retry flag that swallows NAKs, one NAK per gap, the ACK ignored while its message waits to be resent. The tests
// replay captures of rxe through it. It is also strict: a frame that is not exactly what the peer should have sent is
// refused and counted by reason (Counter), and what would corrupt an rxe is a Violation.
//
// Where it knowingly differs from rxe:
//   - A response to a PSN never sent, or ahead of what a resend has reached, completes messages falsely on rxe or
//     hangs it. Here it is counted and ignored, unless Config.AsRXE asks for rxe's fate.
//   - Times are exact; rxe rounds them up to jiffies.
//   - A packet is sent, or a response taken, in one step. In rxe the two interleave, which lets it hang in ways that no
//     state machine shows (captures, rpeer-6.12, last story); ResponsesAheadOfResend counts what leads there.
//   - End-to-end credits (Config.FlowControl) and congestion notifications (Config.CNPInterval) are options that rxe does
//     not have. ConnectX, hfi1 and ionic do.
//   - READ, atomics, FLUSH and SEND with invalidate are refused with NAK invalid request, as by an rxe queue pair
//     that does not permit them. A requester can send a READ, to see it refused.
//
// What it never does: touch a socket (that is internal/rnic/endpoint), or allocate while packets flow.
//
// Read QP and its Receive, Transmit and Tick first; then requester.go and completer.go (how rxe sends and what it makes
// of each response), responder.go (what it answers).
package rnic
