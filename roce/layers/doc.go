// Package layers teaches gopacket RoCEv2, so that captures and traces print what is behind UDP port
// 4791: BTH, its extension headers, payload and ICRC, each a layer.
//
// Importing it registers the layers; nothing else is needed:
//
//	packet := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
//	if bth, ok := packet.Layer(rocelayers.LayerTypeBTH).(*rocelayers.BTH); ok { ... bth.PSN ... }
//
// It is for people's eyes and for tests. It never stands in a packet's way: a whole-packet decode
// allocates and costs about a hundred times what roce.View does (BenchmarkPacket). It does not judge
// ICRCs either, a layer sees no IP header; roce.View.ICRCValid does. R_Keys stay hidden in the text of
// a layer; gopacket's hex Dump shows every byte.
//
// Start reading at decode.go. The headers' fields are those of package roce.
package layers
