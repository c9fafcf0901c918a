package librocast

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/netns"
)

const (
	domain  = "lab.example."
	service = "_rocast._tcp." + domain
)

// srv is a record of the service.
type srv struct {
	priority, weight, port uint16
	host                   string
}

// answer is the answer of DNS with these records to a question for the service, or for the
// addresses of a host.
func answer(t testing.TB, q dnsmessage.Question, id uint16, records []srv, addresses map[string][4]byte) []byte {
	t.Helper()
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: id, Response: true, RecursionAvailable: true})
	b.EnableCompression()
	testlab.Must(t, b.StartQuestions())
	testlab.Must(t, b.Question(q))
	testlab.Must(t, b.StartAnswers())
	head := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 60}
	switch ip, known := addresses[q.Name.String()]; {
	case q.Type == dnsmessage.TypeSRV && q.Name.String() == service:
		testlab.Must(t, b.TXTResource(head, dnsmessage.TXTResource{TXT: []string{"of another type"}}))
		for _, r := range records {
			testlab.Must(t, b.SRVResource(head, dnsmessage.SRVResource{Priority: r.priority, Weight: r.weight, Port: r.port, Target: dnsmessage.MustNewName(r.host)}))
		}
	case q.Type == dnsmessage.TypeA && known:
		testlab.Must(t, b.AResource(head, dnsmessage.AResource{A: ip}))
	}
	text, err := b.Finish()
	testlab.Must(t, err)
	return text
}

var (
	someBoxes = []srv{{20, 9, 1, "late." + domain}, {10, 1, 2, "light." + domain}, {10, 5, 7472, "box." + domain}, {10, 5, 3, "other." + domain}}
	boxIP     = map[string][4]byte{"box." + domain: {10, 77, 3, 254}}
)

func question(name string) dnsmessage.Question {
	return dnsmessage.Question{Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeSRV, Class: dnsmessage.ClassINET}
}

// Of several boxes all hosts take the same one, whatever the order in which DNS names them. An
// answer that is cut off, or that has other bytes in any place, is read without harm.
func TestAnswersOfDNS(t *testing.T) {
	path := compile(t, "find/main.c", "../../host/box.c", "../../host/json.c")
	read := func(answers ...[]byte) []string {
		var in strings.Builder
		for _, a := range answers {
			in.Write(binary.BigEndian.AppendUint16(nil, uint16(len(a))))
			in.Write(a)
		}
		return strings.Split(run(t, path, in.String(), "answers"), "\n")
	}
	turned := append(append([]srv{}, someBoxes[2:]...), someBoxes[:2]...)
	for what, tt := range map[string]struct {
		records []srv
		want    string
	}{
		"several":         {someBoxes, "box.lab.example:7472"},
		"in other order":  {turned, "box.lab.example:7472"},
		"two ports":       {[]srv{{1, 1, 7472, "box." + domain}, {1, 1, 7471, "box." + domain}, {1, 1, 7473, "box." + domain}}, "box.lab.example:7471"},
		"a longer name":   {[]srv{{1, 1, 7472, "box-2."}, {1, 1, 7471, "box."}}, "box:7471"},
		"none":            {nil, "none"},
		"no service here": {[]srv{{0, 0, 7472, "."}}, "none"},
		"no port":         {[]srv{{0, 0, 0, "box." + domain}}, "none"},
		"no port, first":  {append([]srv{{0, 0, 0, "a." + domain}}, someBoxes...), "box.lab.example:7472"},
	} {
		if got := read(answer(t, question(service), 1, tt.records, nil)); len(got) != 1 || got[0] != tt.want {
			t.Errorf("%s: %q, want %q", what, got, tt.want)
		}
	}
	whole := answer(t, question(service), 1, someBoxes, nil)
	var broken [][]byte
	for n := range whole {
		broken = append(broken, whole[:n])
		for _, value := range []byte{0, 1, 0x3F, 0x7F, 0xC0, 0xFF} {
			other := append([]byte{}, whole...)
			other[n] = value
			broken = append(broken, other)
		}
	}
	if got := read(broken...); len(got) != len(broken) {
		t.Errorf("%d of %d were read", len(got), len(broken))
	}
}

// A host whose program names no box takes the one that the DNS of its network names.
func TestTheBoxThatDNSNames(t *testing.T) {
	testlab.NeedRoot(t)
	if _, err := exec.LookPath("unshare"); err != nil {
		t.Skip(err)
	}
	path := compile(t, "find/main.c", "../../host/box.c", "../../host/json.c")
	ns := netns.New(t)
	var server *net.UDPConn
	testlab.Must(t, ns.Do(func() (err error) {
		server, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 53})
		return err
	}))
	var records atomic.Pointer[[]srv]
	var mute atomic.Uint32 // the type of records for which no answer comes: addresses if it is A
	done := make(chan struct{})
	go func() {
		defer close(done)
		for buffer := make([]byte, 512); ; {
			n, from, err := server.ReadFromUDP(buffer)
			if err != nil {
				return
			}
			var p dnsmessage.Parser
			h, err := p.Start(buffer[:n])
			if err != nil {
				continue
			}
			q, err := p.Question()
			if err != nil {
				continue
			}
			if kind := dnsmessage.Type(mute.Load()); q.Type == kind || kind == dnsmessage.TypeA && q.Type == dnsmessage.TypeAAAA {
				continue
			}
			_, _ = server.WriteToUDP(answer(t, q, h.ID, *records.Load(), boxIP), from)
		}
	}()
	t.Cleanup(func() { server.Close(); <-done })
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	testlab.Must(t, os.WriteFile(conf, []byte("nameserver 127.0.0.1\nsearch lab.example\noptions timeout:5\n"), 0o644))
	for _, tt := range []struct {
		records []srv
		want    string
	}{
		{someBoxes, "10.77.3.254 port 7472"},
		{nil, "none"},
		{[]srv{{1, 1, 7472, "unknown." + domain}}, "none"},
	} {
		records.Store(&tt.records)
		out, err := ns.Exec("unshare", "-m", "sh", "-c", fmt.Sprintf("mount --bind %s /etc/resolv.conf && exec %s", conf, path))
		if got := strings.TrimSpace(out); err != nil || got != tt.want {
			t.Errorf("%v: %q, %v, want %q", tt.records, got, err, tt.want)
		}
	}
	// A DNS that does not answer is given up soon, whatever resolv.conf says.
	records.Store(&someBoxes)
	for _, kind := range []dnsmessage.Type{dnsmessage.TypeSRV, dnsmessage.TypeA} {
		mute.Store(uint32(kind))
		begin := time.Now()
		out, err := ns.Exec("unshare", "-m", "sh", "-c", fmt.Sprintf("mount --bind %s /etc/resolv.conf && exec %s", conf, path))
		if took := time.Since(begin); err != nil || strings.TrimSpace(out) != "none" || took > 15*time.Second {
			t.Errorf("no answer of type %v: %q, %v, after %v", kind, out, err, took)
		}
	}
}
