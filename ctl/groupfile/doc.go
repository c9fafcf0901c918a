// Package groupfile reads the file that describes a group.
//
//	name: g1
//	ip: 10.77.0.100                     # the peer IP of the members (addressing: group-ip)
//	qpn: 1                              # the remote QPN of the source
//	mtu: 1024
//	memory: {va: 0x10000, rkey: 0x77}   # the target of the source's writes
//	members:
//	  - {ip: 10.77.0.1, qpn: 17, psn: 1000, role: source}
//	  - {ip: 10.77.0.2, qpn: 18, psn: 5, regions: [{va: 0x7f0000000000, length: 67108864, rkey: 0x1234}]}
//
// A member may be another box: remoteIP and remoteQPN are then what that box has as the other end
// of the link, an address of this box and a QPN, and receivers says for how many receivers the
// member stands in a quorum.
//
// A member with role both is a receiver that may become the source; sendPSN is the first PSN that
// its QP sends. docs/merging.md lists the keys that control how feedback is merged.
//
// [Parse] refuses a file with a mistake; the error names the line and tells how to correct it.
// Parse checks everything that needs only the file. Package ctl makes the checks that need the box:
// ports and their MTU, routes, the owner of an IP. Parse does no I/O, and its errors never contain
// an R_Key.
//
// Read first: file.go.
package groupfile
