// Package rnic is a reliable-connection queue pair in software: requester and responder are one
// state machine without I/O, clock or goroutine. Tests, demos and the simulator use it where a real
// host would have an RDMA NIC.
//
// A queue pair behaves as Soft-RoCE (rxe, Linux 6.1 and 6.12) was read and recorded to behave,
// including what makes rxe hang: the retry flag that makes it ignore NAKs, one NAK for each gap,
// and the ACK that it ignores while its message waits to be resent. The tests replay captures of
// rxe through the queue pair. The queue pair is also strict: it refuses a frame that is not exactly
// what the peer should have sent and counts it by reason (Counter), and it reports a response that
// would corrupt an rxe as a Violation.
//
// It differs from rxe in these points:
//   - A response to a PSN that was never sent, or that a resend has not reached again, completes
//     messages falsely on rxe, or makes rxe hang. Here it is counted and ignored, unless
//     Config.AsRXE is set.
//   - Times are exact. rxe rounds them up to jiffies.
//   - A packet is sent, or a response is taken, in one step. In rxe the two interleave, so that rxe
//     can hang in ways that no state machine shows (captures, rpeer-6.12, last story).
//     ResponsesAheadOfResend counts what leads there.
//   - End-to-end credits (Config.FlowControl), congestion notifications (Config.CNPInterval) and
//     the reaction to them (Config.RateControl) are options. rxe has none of them; ConnectX, hfi1
//     and ionic have credits and notifications, ConnectX has DCQCN.
//   - READ, atomics, FLUSH and SEND with invalidate are refused with NAK invalid request, as an rxe
//     queue pair refuses them if it does not permit them. A requester can send a READ, so that
//     tests can see it refused.
//
// The package never touches a socket (internal/rnic/endpoint does), and it never allocates while
// packets flow.
//
// Read QP with its Receive, Transmit and Tick first; then requester.go and completer.go for how rxe
// sends and what it does with each response, and responder.go for what it answers.
package rnic
