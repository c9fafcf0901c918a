// Package perftest lets an unmodified ib_write_bw or ib_send_bw use a group. The package stands
// between one perftest client and the perftest servers of N receivers.
//
//	on each receiver   ib_write_bw -d rxe0
//	on the box         rocast perftest up --group-ip 10.77.0.100 --receivers 10.77.0.2,10.77.0.3
//	on the source      ib_write_bw -d rxe0 10.77.0.100
//
// The sides of a perftest run agree on their parameters over TCP: the client writes a message, and
// the server answers with a message of the same length; this repeats for each parameter. The
// package acts as the server towards the client and as a client towards every receiver. It forwards
// each message and replaces the addresses, queue pair numbers and keys by the values of a group.
// When all keys are known, the package creates one group for each queue pair. When the first side
// hangs up, the package removes these groups. A host that dies hangs up nothing: the kernel asks it
// by TCP keepalives, and more often while another client waits for the receivers (side.go).
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
// The package does not follow a fixed list of perftest steps, because the steps depend on the tool,
// its options and its version. The package determines the kind of each message from the message
// itself (message.go), so the number of steps does not matter. It presents itself to both sides as
// version 6.10, whatever their versions are. Version 6.10 is new enough for all versions (>= 5.70),
// and older than the negotiation of 6.28, whose message has no fixed size. Clients and servers may
// be of different versions. One difference between 6.06 and 6.29 remains: 6.06 sends the word
// "done" before it hangs up. The package accepts this word from every side and sends it to no side.
//
// # Tests that cannot work, and when the package notices them
//
//	READ, atomics,                 at the first key: out_reads is not 1, or the key is longer
//	--data_validation
//	-c XRC, -c DC                  at the first key: srqn is not 0 (with DC a key also changes)
//	-q differs between the sides   at the keys: a QPN is repeated too early, or a new one is too late
//	ib_write_bw -b                 at the key line before the run. ib_write_bw is recognized by the
//	                               second that it sleeps before its first message. Without -b it
//	                               sends no message at this point. With --write_with_imm it does,
//	                               so --write_with_imm is refused as well
//	latency tests, ib_send_bw -b,  not in the handshake, which equals that of ib_send_bw; noticed when
//	--reversed                     a receiver sends its first packet, which the groups count
//	READ with -o 1                 not in the handshake: the data path answers with NAK invalid
//	                               request. The groups have counted that when the client gives up
//	-R, -z                         these clients use no TCP. While no run is on, cm.go receives their
//	                               datagrams to queue pair 1 of the group IP and has them refused;
//	                               during a run the data path counts the datagrams as
//	                               connection-management. With -R they can use a group whose IP
//	                               answers RDMA-CM: ctl/cm hands the messages of such a run to
//	                               [InBand]
//	-c UD, -c UC                   never: the data path drops and counts packets that are not RC
//
// The package refuses a run by hanging up. perftest notices the hang-up when it reads its next
// message. During a run perftest does not read, and Soft-RoCE retries forever. So the queue pairs
// of a run that is refused that late are ended, too (stray.go). The client of ib_write_lat looks at
// nothing but its memory: the operator has to stop it.
//
// # What the package never does
//
// The package opens no port and changes no interface, table or file: [Groups] and [Addresses] do
// that for it. The package does not know which user connects, because perftest has no passwords.
// Every program on a host of the allowed networks may send to the receivers while their servers
// wait, but only from the address from which the program connects. Keys contain R_Keys; the package
// writes no R_Key to a log or a list.
//
// Read first: conversation.go; then keys.go and plan.go, which rewrite the keys; then helper.go,
// which is the interface to the rest of the daemon.
package perftest
