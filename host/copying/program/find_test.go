package program

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// mute is the host of a DNS that does not answer where it is asked for addresses.
const mute = "mute"

// resolver asks a DNS that names these boxes, of which one host has an address.
func resolver(t *testing.T, host string, records []dnsmessage.SRVResource) *net.Resolver {
	t.Helper()
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		asked, answers := net.Pipe()
		go func() {
			defer answers.Close()
			for buffer := make([]byte, 1<<16); ; {
				n, err := answers.Read(buffer)
				if err != nil {
					return
				}
				if reply := reply(buffer[2:n], host, records); reply != nil { // the length is before it, as over TCP
					_, _ = answers.Write(append([]byte{byte(len(reply) >> 8), byte(len(reply))}, reply...))
				}
			}
		}()
		return asked, nil
	}}
}

func reply(question []byte, host string, records []dnsmessage.SRVResource) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(question)
	q, errQuestion := p.Question()
	if errors.Join(err, errQuestion) != nil {
		return nil
	}
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: h.ID, Response: true, RecursionAvailable: true}, Questions: []dnsmessage.Question{q}}
	head := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
	switch {
	case q.Type == dnsmessage.TypeSRV && strings.HasPrefix(q.Name.String(), service+"."):
		for i := range records {
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &records[i]})
		}
	case q.Type != dnsmessage.TypeSRV && host == mute:
		return nil
	case q.Type == dnsmessage.TypeA && host != "" && q.Name.String() == host:
		m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AResource{A: [4]byte{10, 77, 3, 254}}})
	}
	text, err := m.Pack()
	if err != nil {
		return nil
	}
	return text
}

func record(priority, weight, port uint16, host string) dnsmessage.SRVResource {
	return dnsmessage.SRVResource{Priority: priority, Weight: weight, Port: port, Target: dnsmessage.MustNewName(host)}
}

// Who names no box takes the one that DNS names: of several records the same one as librocast.
func TestTheBoxThatDNSNames(t *testing.T) {
	const host = "box.lab.example."
	best, late := record(10, 5, 7472, host), record(20, 9, 1, "late.lab.example.")
	light, other := record(10, 1, 2, "light.lab.example."), record(10, 5, 3, "other.lab.example.")
	for what, tt := range map[string]struct {
		records    []dnsmessage.SRVResource
		host       string
		want, fail string
	}{
		"several":         {[]dnsmessage.SRVResource{late, light, best, other}, host, "10.77.3.254:7472", ""},
		"in other order":  {[]dnsmessage.SRVResource{other, best, light, late}, host, "10.77.3.254:7472", ""},
		"two ports":       {[]dnsmessage.SRVResource{best, record(10, 5, 7471, host), record(10, 5, 7473, host)}, host, "10.77.3.254:7471", ""},
		"a longer name":   {[]dnsmessage.SRVResource{record(1, 1, 7472, "box-2."), record(1, 1, 7471, "box.")}, "box.", "10.77.3.254:7471", ""},
		"no port":         {[]dnsmessage.SRVResource{record(0, 0, 0, host), best}, host, "10.77.3.254:7472", ""},
		"no service here": {[]dnsmessage.SRVResource{record(0, 0, 1, ".")}, host, "", "--box ADDRESS:PORT"},
		"none":            {nil, host, "", "no record"},
		"no address":      {[]dnsmessage.SRVResource{best}, "", "", "box.lab.example"},
	} {
		got, err := findBox(t.Context(), resolver(t, tt.host, tt.records))
		if got != tt.want || (err != nil) != (tt.fail != "") || err != nil && !strings.Contains(err.Error(), tt.fail) {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
}

// A DNS that does not answer is no DNS that names no box.
func TestADNSThatDoesNotAnswer(t *testing.T) {
	deaf := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("the network is down")
	}}
	if _, err := findBox(t.Context(), deaf); err == nil || !strings.Contains(err.Error(), "the network is down") {
		t.Error(err)
	}
}

// A DNS that takes long has a bound for all of its answers: a host that waits looks like one that
// hangs.
func TestADNSThatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		_, err := findBox(t.Context(), resolver(t, mute, []dnsmessage.SRVResource{record(1, 1, 7472, "box.lab.example.")}))
		if took := time.Since(begin); took != lookupTime || err == nil || !strings.Contains(err.Error(), "no answer within 15s: write --box") {
			t.Errorf("%v, after %v", err, took)
		}
		<-time.After(time.Hour) // what the resolver has begun ends by itself
	})
}
