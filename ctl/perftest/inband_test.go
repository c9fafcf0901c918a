package perftest

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/groupip"
	"github.com/rocast/rocast/internal/captures"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// sends are the messages of the client and of the server in a capture, by SENDs.
func sends(t testing.TB, name string) (client, server [][]byte) {
	t.Helper()
	frames, err := captures.Frames(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range frames {
		var v roce.View
		if v.Decode(f.Data, len(f.Data)) != nil || v.Opcode != roce.OpSendOnly {
			continue
		}
		message := f.Data[v.Payload : v.Payload+v.PayloadBytes]
		if f.Data[v.L3+15] == inBandClientIP.As4()[3] {
			client = append(client, message)
		} else {
			server = append(server, message)
		}
	}
	return client, server
}

var inBandClientIP = netip.MustParseAddr("10.77.0.1")

var inBandReceivers = []netip.Addr{netip.MustParseAddr("10.77.0.2"), netip.MustParseAddr("10.77.0.3")}

const (
	inBandClient roce.QPN = 0x4d // in the capture
	inBandGroup  roce.QPN = 0x201
)

func binaryKey(t testing.TB, b []byte) key {
	t.Helper()
	k, _, err := parseBinaryKey(b)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// passOn hands over a message of the client, and the same answer of both receivers.
func passOn(t testing.TB, b *InBand, message, answer []byte) (forward, merged []byte, keys *groupip.Keys) {
	t.Helper()
	forward, err := b.Ask(message)
	if err != nil {
		t.Fatal(err)
	}
	merged, keys, err = b.Answer([][]byte{answer, answer})
	if err != nil {
		t.Fatal(err)
	}
	return forward, merged, keys
}

// A captured run of ib_write_bw -R: all messages pass, except for versions, which are those of
// doc.go, and for keys, which name the group in place of the hosts.
func TestACapturedRunInBand(t *testing.T) {
	client, server := sends(t, "write_R")
	if len(client) != 16 || len(client) != len(server) {
		t.Fatalf("%d messages of the client, %d of the server", len(client), len(server))
	}
	groupIP := netip.MustParseAddr("10.77.0.100")
	b := NewInBand(groupIP, inBandClientIP, inBandReceivers)
	var lengths []string
	for i := range client {
		if i == 5 {
			b.Connected(inBandClient, inBandGroup)
		}
		forward, merged, keys := passOn(t, b, client[i], server[i])
		if expects := i == 4 || i == 5; b.ExpectsConnections() != expects {
			t.Errorf("message %d: expects connections: %v", i, !expects)
		}
		if (keys != nil) != (i == 6) {
			t.Errorf("message %d: keys %+v", i, keys)
		}
		if i == 6 {
			memory := mft.VirtualRegion{VA: virtualVA, Length: regionBytes, RKey: uint32(inBandGroup)<<8 | 0x67}
			region := mft.Region{VA: 0x55aa8d258000, Length: regionBytes, RKey: 0xbc94}
			if keys.Client != inBandClient || keys.Memory != memory || len(keys.Regions) != 2 || keys.Regions[0] != region || keys.Regions[1] != region {
				t.Errorf("%+v", keys)
			}
		}
		wantForward, wantMerged := client[i], server[i]
		switch k, _, err := parseBinaryKey(client[i]); {
		case i == 0:
			wantForward, wantMerged = versionMessage(), versionMessage()
		case err == nil && k.QPN != 0:
			k.GID, k.QPN = groupIP, inBandGroup
			_, rest, _ := parseBinaryKey(client[i])
			wantForward = k.binary(rest)
			k = binaryKey(t, server[i])
			k.GID, k.QPN, k.VA, k.RKey = groupIP, inBandGroup, virtualVA, uint32(inBandGroup)<<8|0x67
			wantMerged = k.binary(rest)
		}
		if !bytes.Equal(forward, wantForward) || !bytes.Equal(merged, wantMerged) {
			t.Errorf("message %d:\n%x to the receivers, want\n%x;\n%x to the client, want\n%x", i, forward, wantForward, merged, wantMerged)
		}
		lengths = append(lengths, string(rune('0'+len(client[i])/8)))
	}
	if got := strings.Join(lengths, ""); got != "2000777777111117" {
		t.Errorf("messages of %s times 8 bytes", got)
	}
}

// A key reads and writes as it was captured, also in the form of newer versions, which is longer.
func TestBinaryKeys(t *testing.T) {
	client, _ := sends(t, "write_R")
	short := bytes.Clone(client[6])
	long := append(append(bytes.Clone(short[:32]), 1, 2, 3, 4, 5, 6, 7, 8), short[32:]...)
	for _, b := range [][]byte{short, long} {
		k, rest, err := parseBinaryKey(b)
		want := key{OutReads: 1, QPN: inBandClient, PSN: 0x4a2a63, RKey: 0x5d5e, VA: 0x55bcc3eaf000, GID: inBandClientIP}
		if err != nil || k != want || !bytes.Equal(k.binary(rest), b) {
			t.Errorf("%+v, %v, %x", k, err, k.binary(rest))
		}
	}
	for name, b := range map[string][]byte{
		"too short": short[:55], "between": long[:60], "LID": with(short, 1), "READs": with(short, 5), "QPN": with(short, 8), "PSN": with(short, 12),
	} {
		if _, _, err := parseBinaryKey(b); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// with returns b with another byte.
func with(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at]++
	return b
}

// What differs between the receivers is merged, so that no side does what another one cannot.
func TestInBandMerges(t *testing.T) {
	client, server := sends(t, "write_R")
	b := NewInBand(netip.MustParseAddr("10.77.0.100"), inBandClientIP, inBandReceivers)
	passOn(t, b, client[0], server[0])
	number := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	for _, c := range []struct{ message, first, second, want []byte }{
		{number(4096), number(8192), number(4096), number(4096)},
		{number(64), number(64), number(128), number(64)},
		{[]byte("5\x00"), []byte("5\x00"), []byte("3\x00"), []byte("3\x00")},
		{[]byte("5\x00"), []byte("1\x00"), []byte("3\x00"), []byte("1\x00")},
	} {
		if forward, err := b.Ask(c.message); err != nil || !bytes.Equal(forward, c.message) {
			t.Errorf("%x becomes %x, %v", c.message, forward, err)
		}
		if got, _, err := b.Answer([][]byte{c.first, c.second}); err != nil || !bytes.Equal(got, c.want) {
			t.Errorf("%x: %x, %v", c.message, got, err)
		}
	}
}

// What no group can carry, or what is not perftest, is refused in words.
func TestInBandRefusals(t *testing.T) {
	client, server := sends(t, "write_R")
	for want, play := range map[string]func(*InBand) error{
		"client 10.77.0.1, which connects with --memory perftest, does not begin like a message of perftest": func(b *InBand) error {
			for _, begin := range [][]byte{make([]byte, versionBytes), []byte(presentedVersion)} { // no version, and a short one
				if _, err := NewInBand(b.groupIP, b.client, b.receivers).Ask(begin); err == nil {
					t.Errorf("%q is taken for a version", begin)
				}
			}
			_, err := NewInBand(b.groupIP, b.client, b.receivers).Ask([]byte("hello"))
			return err
		},
		"client 10.77.0.1 sent something that is not a key line": func(b *InBand) error {
			_, err := b.Ask(make([]byte, 55))
			return err
		},
		"client 10.77.0.1 names queue pair 0x4e, which is not connected by RDMA-CM, as with -z; run it with -R": func(b *InBand) error {
			_, err := b.Ask(with(client[6], 11))
			return err
		},
		"client 10.77.0.1 wants to have 2 READs or atomics outstanding; a group cannot merge their responses, so run ib_write_bw or ib_send_bw": func(b *InBand) error {
			_, err := b.Ask(with(client[6], 7))
			return err
		},
		"receiver 10.77.0.3 answers 56 bytes with 8; run the same perftest on all sides": func(b *InBand) error {
			_, err := b.Ask(client[6])
			if err == nil {
				_, _, err = b.Answer([][]byte{server[6], server[10]})
			}
			return err
		},
		"receiver 10.77.0.3 answered with something that is not a key line": func(b *InBand) error {
			_, err := b.Ask(client[6])
			if err == nil {
				_, _, err = b.Answer([][]byte{server[6], with(server[6], 1)})
			}
			return err
		},
		"receiver 10.77.0.2 wants to have 2 READs or atomics outstanding; a group cannot merge their responses, so run ib_write_bw or ib_send_bw": func(b *InBand) error {
			_, err := b.Ask(client[6])
			if err == nil {
				_, _, err = b.Answer([][]byte{with(server[6], 7), server[6]})
			}
			return err
		},
		"receiver 10.77.0.3 changed its memory during the run": func(b *InBand) error {
			passOn(t, b, client[6], server[6])
			_, err := b.Ask(client[6])
			if err == nil {
				_, _, err = b.Answer([][]byte{server[6], with(server[6], 31)})
			}
			return err
		},
		"receiver 10.77.0.3 names no path MTU": func(b *InBand) error {
			_, err := b.Ask(client[3])
			if err == nil {
				_, _, err = b.Answer([][]byte{server[3], []byte("9\x00")})
			}
			return err
		},
		"receiver 10.77.0.2 does not begin like a message of perftest": func(b *InBand) error {
			b = NewInBand(b.groupIP, b.client, b.receivers)
			_, err := b.Ask(client[0])
			if err == nil {
				_, _, err = b.Answer([][]byte{make([]byte, 16), server[0]})
			}
			return err
		},
	} {
		b := NewInBand(netip.MustParseAddr("10.77.0.100"), inBandClientIP, inBandReceivers)
		passOn(t, b, client[0], server[0])
		b.Connected(inBandClient, inBandGroup)
		if err := play(b); err == nil || err.Error() != want || !isRefusal(err) {
			t.Errorf("\ngot  %v\nwant %s", err, want)
		}
	}
}

// What only the first receiver says is what the client hears: the numbers of a report, and what is
// in a key beside its addresses and memory.
func TestTheFirstReceiverSpeaksForAll(t *testing.T) {
	client, server := sends(t, "write_R")
	b := NewInBand(netip.MustParseAddr("10.77.0.100"), inBandClientIP, inBandReceivers)
	b.Connected(inBandClient, inBandGroup)
	seen := map[int]bool{}
	for i := range client {
		if _, err := b.Ask(client[i]); err != nil {
			t.Fatal(err)
		}
		second := bytes.Clone(server[i])
		isKey := len(second) >= binaryKeyBytes
		if isKey || len(second) == reportBytes {
			second[len(second)-1]++
		}
		answer, _, err := b.Answer([][]byte{server[i], second})
		if err != nil {
			t.Fatal(err)
		}
		if seen[len(answer)] = true; (isKey || len(answer) == reportBytes) && answer[len(answer)-1] != server[i][len(answer)-1] {
			t.Errorf("message %d: the client hears %x, the first receiver says %x", i, answer, server[i])
		}
	}
	if !seen[reportBytes] || !seen[binaryKeyBytes] && !seen[binaryKeyBytes+markerBytes] {
		t.Errorf("lengths %v", seen)
	}
}

// A number beyond what its field can hold shows that the bytes are no key.
func TestABinaryKeyHasNumbersThatFit(t *testing.T) {
	for at, most := range map[int]uint32{0: 0xFFFF, 4: 0xFFFF, 8: 0xFFFFFF, 12: 0xFFFFFF} {
		for _, n := range []uint32{most, most + 1} {
			b := make([]byte, binaryKeyBytes)
			binary.BigEndian.PutUint32(b[at:], n)
			if _, _, err := parseBinaryKey(b); (err == nil) != (n == most) {
				t.Errorf("%#x at %d: %v", n, at, err)
			}
		}
	}
}

// Each number of a key is read from where it is written, whatever bytes it has.
func TestEachNumberOfABinaryKeyHasItsPlace(t *testing.T) {
	want := key{
		LID: 0x0102, OutReads: 0x0304, QPN: 0x050607, PSN: 0x08090A, RKey: 0x0B0C0D0E, VA: 0x1112131415161718,
		GID: netip.MustParseAddr("fd77:2122:2324::2526"), SRQN: 0x31323334,
	}
	for _, marker := range [][]byte{nil, {41, 42, 43, 44, 45, 46, 47, 48}} {
		index := []byte{51, 52, 53, 54}
		got, rest, err := parseBinaryKey(want.binary([2][]byte{marker, index}))
		if err != nil || got != want || !bytes.Equal(rest[0], marker) || !bytes.Equal(rest[1], index) {
			t.Errorf("%+v, %v, %v", got, rest, err)
		}
	}
}
