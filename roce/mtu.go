package roce

// LinkMTU returns the MTU that a link needs for packets with a path MTU: these have at most so many
// bytes of payload, and IP, UDP, BTH, RETH, ImmDt and ICRC besides.
func LinkMTU(pathMTU int, isIPv4 bool) int {
	need := pathMTU + udpBytes + BTHBytes + RETHBytes + ImmDtBytes + icrcBytes
	if isIPv4 {
		return need + ipv4Bytes
	}
	return need + ipv6Bytes
}
