package perftest

import (
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/rocast/rocast/internal/captures"
)

// streams are the two directions of the TCP connection to port 18515 in a capture.
func streams(t testing.TB, name string) (client, server []byte) {
	t.Helper()
	frames, err := captures.Frames(name)
	if err != nil {
		t.Fatal(err)
	}
	var from [2]struct {
		next  uint32
		bytes []byte
	}
	for _, f := range frames {
		tcp, ok := gopacket.NewPacket(f.Data, layers.LayerTypeEthernet, gopacket.Default).Layer(layers.LayerTypeTCP).(*layers.TCP)
		if !ok || tcp.SrcPort != DefaultPort && tcp.DstPort != DefaultPort {
			continue
		}
		d := &from[0]
		if tcp.SrcPort == DefaultPort {
			d = &from[1]
		}
		switch {
		case tcp.SYN:
			d.next = tcp.Seq + 1
		case len(tcp.Payload) == 0:
		case tcp.Seq != d.next:
			t.Fatalf("%s: segment %d where %d is next", name, tcp.Seq, d.next)
		default:
			d.next += uint32(len(tcp.Payload))
			d.bytes = append(d.bytes, tcp.Payload...)
		}
	}
	return from[0].bytes, from[1].bytes
}

// dissect cuts one direction into messages.
func dissect(t testing.TB, stream []byte) (messages [][]byte) {
	t.Helper()
	for len(stream) > 0 {
		length := 0
		switch len(messages) {
		case 0:
			length = versionBytes
		case 1, 2:
			length = sysDataBytes
		case 3:
			length = mtuBytes
		default:
			_, length = scan(stream)
		}
		if length == 0 || length > len(stream) {
			t.Fatalf("message %d: %d bytes left, %d wanted", len(messages), len(stream), length)
		}
		messages = append(messages, stream[:length])
		stream = stream[length:]
	}
	return messages
}

// captured returns the conversation of a capture as a script.
func captured(t testing.TB, name string) script {
	t.Helper()
	c, s := streams(t, name)
	client, server := dissect(t, c), dissect(t, s)
	if len(client) != len(server) {
		t.Fatalf("%s: %d messages of the client, %d of the server", name, len(client), len(server))
	}
	var sc script
	for i := range client {
		if string(client[i]) == farewell {
			sc.farewell = true
			break
		}
		sc.exchanges = append(sc.exchanges, exchange{client: client[i], server: server[i]})
	}
	return sc
}

// words names the messages of one direction: a key by the letter of its queue pair.
func words(t testing.TB, stream []byte) string {
	t.Helper()
	var names []string
	letters := map[string]string{}
	for i, m := range dissect(t, stream) {
		name := "report"
		switch len(m) {
		case versionBytes:
			v, err := parseVersion(m)
			if err != nil {
				t.Fatalf("message %d: %v", i, err)
			}
			name = v
		case sysDataBytes:
			name = "sys"
		case mtuBytes:
			v, err := parseMTU(m)
			if err != nil {
				t.Fatalf("message %d: %v", i, err)
			}
			name = "mtu" + string('0'+rune(v))
		case keyBytes:
			k, err := parseKey(m)
			if err != nil {
				t.Fatalf("message %d: %v", i, err)
			}
			if string(k.line()) != string(m) {
				t.Errorf("message %d: %q is written as %q", i, m, k.line())
			}
			if letters[string(m)] == "" {
				letters[string(m)] = string('a' + rune(len(letters)))
			}
			name = letters[string(m)]
		case len(farewell):
			name = "done"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

func TestCapturedConversationsAreUnderstood(t *testing.T) {
	const opening = "6.06 sys sys mtu3 "
	const reports = " report report report report report "
	for name, want := range map[string]string{
		"write_small": opening + "a a a a" + reports + "a done",
		"write_q4":    opening + "a b c d a b c d a a" + reports + "a done",
		"send":        opening + "a a a a a done",
		"send_odd":    opening + "a a a a a done",
		"read":        opening + "a a a a" + reports + "a done",
		"write_lat":   opening + "a a a a",
	} {
		client, server := streams(t, name)
		if got := words(t, client); got != want {
			t.Errorf("%s, client:\ngot  %s\nwant %s", name, got, want)
		}
		if got := words(t, server); got != want {
			t.Errorf("%s, server:\ngot  %s\nwant %s", name, got, want)
		}
	}
	if client, server := streams(t, "write_R"); len(client)+len(server) > 0 {
		t.Error("with -R there is TCP after all")
	}
}

// TestCapturedKeysTellTheTests checks which tests the first key already shows to be impossible.
func TestCapturedKeysTellTheTests(t *testing.T) {
	for name, want := range map[string]string{
		"write_small": "", "write_q4": "", "send": "", "send_odd": "",
		"write_lat": "", // like send, except for an R_Key, which hardware also gives to send
		"read":      "client 10.77.0.1 wants to have 128 READs or atomics outstanding; a group cannot merge their responses, so run ib_write_bw or ib_send_bw",
	} {
		client, _ := streams(t, name)
		k, err := parseKey(dissect(t, client)[4])
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := checkKey("client 10.77.0.1", k.GID, k); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
