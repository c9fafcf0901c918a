// Package xsk moves frames between network devices and memory with AF_XDP sockets: a UMEM of chunks, shared by the
// sockets of one worker thread, and four rings per socket. It knows nothing of what is in a frame, loads no program,
// starts no goroutine and takes no lock. UMEM, sockets and Poller.Poll belong to one thread; other goroutines may call
// Poller.Wake and Socket.Stats, and open and close sockets by way of SocketConfig.Owner. Start reading here, then at socket.go, receive.go and transmit.go.
//
// # Who holds a chunk
//
// A chunk is 4096 bytes of UMEM. It is in exactly one of four places, and each arrow is one method:
//
//	          Alloc               Fill, TopUp, Recycle
//	free  ------------> worker ------------------------> receive side of a socket
//	list  <------------        <------------------------   fill ring -> kernel or driver -> RX ring
//	        Free, Recycle        Receive
//
//	                    worker ------------------------> transmit side of a socket, in discipline Give
//	                           <------------------------   TX ring -> kernel or driver -> completion ring
//	                             Complete
//
// The kernel never moves a chunk from one side to the other, nor between sockets. Where each chunk is stands in a
// ledger, two bytes a chunk. A move from a place where the chunk is not panics: the mistake would otherwise show as
// somebody's damaged frame, later. The same ledger lets UMEM.Audit prove after any scenario that
//
//	free + held by the worker + receive sides + transmit sides + stranded == total
//
// # Two disciplines of sending
//
// Lend is for sockets whose kernel copies. The chunk stays the worker's. Transmit puts descriptors on the TX ring, Flush
// asks the kernel until its consumer index has passed them, and at that moment it has the bytes (xsk_build_skb). The
// chunk may then be rewritten and sent through the next port, which is replication without a copy. The order is the rule:
//
//	n := in.Receive(batch)
//	for each egress port {
//		rewrite the headers in the chunks of batch[:n]
//		out.Transmit(batch[:n])
//		withdrawn, err := out.Flush(patience)
//	}
//	in.Recycle(batch[:n])
//
// A chunk sent through three ports is completed three times, in three completion rings, at any time. Such an entry says
// nothing about who has the chunk, so lending sockets count and discard it; a full completion ring stops the kernel,
// hence they do so before each kick. The kernel reads a TX ring only inside this thread's own syscalls (sendto, and
// ppoll for a socket that sends), and that makes withdrawing safe: when Flush returns, whatever it returns, no
// descriptor left on the ring points at the worker's memory.
//
// Give is for sockets whose device reads the UMEM itself: zero-copy, and virtio_net in copy mode, whose skbs point at the
// UMEM's pages although everything else about it says copy. The chunk is the kernel's until Complete returns it. One
// chunk cannot be in two places, so replicating means one chunk per copy, and fragments cannot be shared.
//
// A socket has one discipline, fixed when it opens, because a completion entry carries nothing but an address.
//
// # When something goes wrong
//
//	what                                    the chunk is with             who moves it on
//	--------------------------------------  ----------------------------  -----------------------------------------
//	Fill or Recycle finds no room           worker / free list            the worker frees it / nobody needs to
//	frame dropped, fill ring empty          nobody: none was taken        TopUp, so that the next frame has one
//	frame dropped, too long for one chunk   nobody: none was taken        -
//	frame dropped, RX ring full             receive side                  the kernel keeps it for the next frame
//	batch ends within a frame               receive side (RX ring)        the next Receive
//	Transmit takes less than all            worker                        the worker: Recycle drops, or try again
//	frame of more than 17 descriptors       worker: Transmit stops there  the worker drops it
//	descriptor the kernel would refuse      worker: Transmit panics       -
//	Lend: Flush fails (stalled, link down)  worker: withdrawn             the worker, as after success
//	Give: Flush fails                       transmit side (TX ring)       a later kick and Complete, or Close
//	Give: the driver drops the frame        transmit side (completion)    Complete
//	device is gone (ENXIO; Lost)            both sides                    Close: no kernel or driver has them any more
//	Close                                   free list                     Close itself; held chunks stay held
//	Close in Give, kernel does not let go   stranded                      nobody: the error says how many
//	Open fails                              free list                     Open itself
//
// # Frames
//
// A received frame begins HeadroomBytes into its chunk. XDP metadata lies right in front of it, of a longer frame in
// front of the first descriptor only, and a frame to be sent may begin anywhere in the chunk: the headroom takes a VLAN
// tag. Fill and Free accept any address in a chunk. A frame longer than FrameBytes is several descriptors, all but the
// last with XDP_PKT_CONTD; Receive and Transmit never split one.
//
// # Waiting
//
// Nothing here waits but Poller.Poll, Open (for a queue whose last owner is being torn down) and Close in Give, each with
// a bound. Syscalls on the way of frames (sendto, recvfrom) bypass Go's scheduler: they do not block, and telling it costs
// 15 to 44 percent. The worker's goroutine must be locked to its thread, and GOMAXPROCS leave room for the rest.
//
// What the kernel could give is asked, obtained and shown: SocketConfig, Obtained, Features.
package xsk
