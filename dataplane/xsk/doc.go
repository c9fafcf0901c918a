// Package xsk moves frames between network devices and memory with AF_XDP sockets: a UMEM of
// chunks, which the sockets of one worker thread share, and four rings for each socket. It does not
// look into frames, loads no program, starts no goroutine and takes no lock. The older Go library,
// asavie/xdp, has no UMEM that sockets share.
//
// One thread owns a UMEM, its sockets and the call of Poller.Poll. Other goroutines may call
// Poller.Wake and Socket.Stats. With SocketConfig.Owner another goroutine may also open and close
// sockets. Read this comment first, then socket.go, receive.go and transmit.go.
//
// # Who holds a chunk
//
// A chunk is 4096 bytes of the UMEM. It is in exactly one of four places. Each arrow is a method:
//
//	          Alloc               Recycle
//	free  ------------> worker ------------------------> receive side of a socket
//	list  <------------        <------------------------   fill ring -> kernel or driver -> RX ring
//	        Free, Recycle         Receive
//	free  ---------------------------------------------> receive side of a socket
//	list           TopUp
//
//	                    worker ------------------------> transmit side of a socket, discipline Give
//	                           <------------------------   TX ring -> device -> completion ring
//	                             Complete
//
// The kernel moves no chunk from one side to the other, and none between sockets. A ledger, two
// bytes for each chunk, records where each chunk is. To move a chunk from a place where it is not
// panics; without the ledger the mistake would show later, as a damaged frame of another user. With
// the same ledger UMEM.Audit proves after any scenario that
//
//	free + held by the worker + receive sides + transmit sides + stranded == total
//
// # Two disciplines of sending
//
// Lend is for sockets whose kernel copies. The worker keeps the chunk. Transmit puts descriptors on
// the TX ring. Flush kicks the kernel until its consumer index is behind them; at that moment the
// kernel has copied the bytes (xsk_build_skb). Then the worker may rewrite the chunk and send it
// through the next port. This is replication without a copy in user space. The order matters:
//
//	n := in.Receive(batch)
//	for each egress port {
//		rewrite the headers in the chunks of batch[:n]
//		out.Transmit(batch[:n])
//		withdrawn, err := out.Flush(patience)
//	}
//	for _, d := range batch[:n] {
//		in.Recycle(d.Addr)
//	}
//	in.TopUp()
//
// A chunk that is sent through three ports is completed three times, in three completion rings, at
// any time. Such a completion does not say that the worker gets the chunk back, so a lending socket
// only counts and discards it. A full completion ring stops the kernel; therefore completions are
// discarded before each kick. The kernel reads a TX ring only inside system calls of this thread:
// sendto, and ppoll for a socket that sends. This makes it safe to withdraw frames: when Flush
// returns, no descriptor on the ring points at the worker's memory, whatever Flush returns.
//
// Give is for sockets whose device reads the UMEM itself: zero-copy, and virtio_net in copy mode,
// where the fragments of an skb are pages of the UMEM. The kernel holds the chunk until Complete
// returns it. A chunk cannot be in two places, so each copy of a replicated frame needs chunks of
// its own.
//
// A socket has one discipline, which is fixed when it is opened, because a completion carries only
// an address.
//
// # When something goes wrong
//
//	event                                the chunk is with           next holder
//	-----------------------------------  --------------------------  ----------------------------
//	Recycle, but the level is reached    free list                   -
//	frame dropped, fill ring empty       no chunk was used           -
//	frame dropped, too long for a chunk  no chunk was used           -
//	frame dropped, RX ring full          receive side                the kernel uses it again
//	batch ends within a frame            receive side (RX ring)      the next Receive
//	Transmit takes less than all         worker                      the worker drops it or retries
//	frame of more than 17 descriptors    worker                      the worker drops it
//	descriptor that the kernel refuses   worker: Transmit panics     -
//	Lend: Flush fails                    worker: withdrawn           the worker, as after success
//	Give: Flush fails                    transmit side (TX ring)     a later kick and Complete
//	Give: the driver drops the frame     transmit side (completion)  Complete
//	device is gone (ENXIO; Lost)         both sides                  Close
//	Close                                free list                   -
//	Close in Give, queue not released    stranded                    none: the error has the number
//	Open fails                           free list                   -
//
// # Frames
//
// A received frame begins HeadroomBytes into its chunk. XDP metadata lies right in front of it; for
// a frame of several descriptors, in front of the first. A frame to be sent may begin anywhere in
// its chunk, so the headroom has room for a VLAN tag. Recycle and Free accept any address in a
// chunk. A frame that is longer than FrameBytes has several descriptors, and all but the last have
// XDP_PKT_CONTD. Receive and Transmit never split a frame.
//
// # Waiting
//
// Only four functions wait, each for a bounded time: Poller.Poll, Flush in copy mode, Open for a
// queue whose last socket is being torn down, and Close in Give. The system calls for frames
// (sendto, recvfrom) do not block and bypass Go's scheduler; to tell it about them would cost 15 to
// 44 percent. Therefore the worker's goroutine must be locked to its thread, and GOMAXPROCS must
// leave room for the other goroutines.
//
// SocketConfig is what a caller asks of the kernel, Obtained is what the kernel gave, and Features
// lists what this kernel has.
package xsk
