// Package restart kills rocastd while the sources of many groups send, and starts it again: none of
// them may notice more than a pause.
//
// ROCAST_KILLS says how often it is killed, and ROCAST_TIMEOUT how patient the queue pairs are:
// with 14, as perftest's, they retry for 0.47 s, and with 16, as here, for 1.9 s. rxe, whose timers
// are longer, lives for 0.5 to 3.8 s. The command says for how long the box was away:
// `ROCAST_KILLS=20 ROCAST_TIMEOUT=14 go test ./test/restart -v`.
package restart
