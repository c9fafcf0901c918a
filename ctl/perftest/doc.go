// Package perftest lets the unmodified ib_write_bw and ib_send_bw talk to a group: it stands between one perftest client
// and the perftest servers of N receivers.
//
//	on each receiver   ib_write_bw -d rxe0
//	on the box         rocast perftest up --group-ip 10.77.0.100 --receivers 10.77.0.2,10.77.0.3
//	on the source      ib_write_bw -d rxe0 10.77.0.100
//
// perftest agrees on a run over TCP: the client writes a message, the server reads it and answers with one of the same
// length, again and again. The package is the server to the client and a client to every receiver, and passes each
// message on with the addresses, queue pair numbers and keys of a group in it. As soon as all keys are known it has the
// groups made, one for each queue pair, and it has them removed when the first side hangs up.
//
//	client                         here                          every receiver
//	  |-- version ------------------>|  (a client that speaks)
//	  |                              |-- connect, "6.10" ----------->|
//	  |<-- "6.10" -------------------|<-- version -------------------|
//	  |-- key of QP 0 -------------->|-- group's GID, client's PSN ->|
//	  |<-- group's GID, QPN, memory -|<-- key -----------------------|   ... for every QP
//	  |-- key of QP 0, again ------->|   all keys are known: the groups are made
//	  |                              |-- as before ----------------->|
//	  |========== RDMA traffic, replicated by the data path ========>|
//	  |-- key, reports, key -------->|-- passed on ----------------->|
//	  |-- hangs up                   |   the groups are removed      |
//
// It does not follow perftest's list of steps, which depends on the tool, its options and its version: it asks each
// message for its kind (message.go), so the number of steps does not matter. On both sides it presents itself as version
// 6.10, whatever they are: new enough for all (>= 5.70) and older than the negotiation of 6.28, whose message has no
// fixed size. Clients and servers may be of different versions. The one thing left in which 6.06 and 6.29 differ, the word
// "done" that the older one says before it hangs up, is taken from whoever says it and owed to nobody.
//
// # What cannot work, and when it is noticed
//
//	READ, atomics, --data_validation  at the first key: out_reads is not 1, or the key is longer
//	-c XRC, -c DC                     at the first key: srqn is not 0 (DC also: a key changes)
//	-q not the same on all sides      at the keys: a QPN comes again, or another one does
//	ib_write_bw -b                    at the key line before the run: ib_write_bw is known by the second it sleeps before
//	                                  it speaks, and without -b it has nothing to say before it has sent data.
//	                                  --write_with_imm has, and is refused with it
//	latency tests, ib_send_bw -b,     not in the handshake, which is that of ib_send_bw: when a receiver has sent its
//	--reversed                        first packet, which the groups count
//	READ with -o 1                    not in the handshake: the data path answers NAK invalid request, and the groups
//	                                  counted that when the client has given up
//	-R, -z                            there is no TCP: their datagrams to queue pair 1 of the group IP are heard while
//	                                  nothing runs (cm.go); else the data path counts them as connection-management
//	-c UD, -c UC                      never: the data path drops what is not RC and counts it
//
// Refusing a run means to hang up. perftest notices when it reads next; in the middle of a run it does not read, and
// Soft-RoCE retries for ever, so what is refused only then has to be stopped by hand on the hosts.
//
// # What it never does
//
// It opens no port and touches no interface, table or file: [Groups] and [Addresses] do that for it. It does not know which user
// connects, because perftest has no passwords: every program on a host of the allowed networks may send to the receivers
// while their servers wait, but only from the address it connects from. R_Keys are in the keys, and never in a log or a list.
//
// Read first: conversation.go, then keys.go and plan.go for what is rewritten, helper.go for the outside.
package perftest
