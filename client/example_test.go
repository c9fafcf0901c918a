package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/rocast/rocast/client"
)

// daemon answers on a socket like a rocastd whose group g1 is waited for, and then evicts a member.
func daemon() (socket string, stop func()) {
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		log.Fatal(err)
	}
	socket = filepath.Join(dir, "rocast.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	answer := func(v any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(v) }
	}
	ready := client.Group{GroupSummary: client.GroupSummary{Name: "g1", State: "ready", ClearToSend: true, MemberCount: 3}}
	mux := http.NewServeMux()
	mux.Handle("POST /v1/groups", answer(client.Group{GroupSummary: client.GroupSummary{Name: "g1", State: "waiting", WaitingCount: 1}}))
	mux.Handle("POST /v1/groups/g1/ready", answer(ready))
	mux.Handle("GET /v1/groups/g1", answer(ready))
	mux.Handle("GET /v1/events", answer(client.Events{Events: []client.Event{{Kind: "member-evicted", Group: "g1", Member: "10.77.0.3"}}}))
	s := &http.Server{Handler: mux}
	go func() { _ = s.Serve(l) }()
	return socket, func() { s.Close(); os.RemoveAll(dir) }
}

var groupFile []byte

// A program creates a group, and sends when all receivers are there.
func Example() {
	socket, stop := daemon()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()

	c := client.New(socket)
	group, err := c.CreateGroup(ctx, groupFile)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(group.Name, "is", group.State)
	if group, err = c.WaitClear(ctx, "g1"); err != nil {
		log.Fatal(err)
	}
	fmt.Println(group.Name, "is", group.State, "with", group.MemberCount, "members")
	// Output:
	// g1 is waiting
	// g1 is ready with 3 members
}

// A receiver's program says that its QP is ready to receive.
func ExampleClient_Confirm() {
	socket, stop := daemon()
	defer stop()
	psn := uint32(5)
	group, err := client.New(socket).Confirm(context.Background(), "g1", client.Confirmation{
		IP: "10.77.0.2", QPN: 18, State: "RTR", PSN: &psn,
	})
	fmt.Println(group.ClearToSend, err)
	// Output: true <nil>
}

// A program hears when a receiver is evicted.
func ExampleClient_Follow() {
	socket, stop := daemon()
	defer stop()
	for events, err := range client.New(socket).Follow(context.Background(), client.Cursor{}, "g1") {
		if err != nil {
			fmt.Println(err) // the daemon does not answer, and is asked again
		}
		for _, e := range events.Events {
			fmt.Println(e.Kind, e.Group, e.Member)
		}
		break
	}
	// Output: member-evicted g1 10.77.0.3
}

// A program on a host joins a group that has no file. Between Join and Ready it connects its queue
// pair to what Join says.
func ExampleHost() {
	box, stop := hostsOf(
		client.HostGroup{Name: "g1", State: "gathering", Version: "1", Came: []string{"127.0.0.1"}},
		client.HostGroup{Name: "g1", State: "running", Version: "2", IP: "10.77.0.200", QPN: 77, MTU: 1024},
		client.HostGroup{Name: "g1", State: "running", Version: "3", IP: "10.77.0.200", QPN: 77, MTU: 1024, ClearToSend: true},
	)
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()

	host := client.NewHost(box, netip.MustParseAddr("127.0.0.1"))
	own := client.HostRequest{Role: "source", QPN: 17, PSN: 1000, Members: 3, MTU: 1024}
	group, err := host.Join(ctx, "g1", own)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("connect to QPN", group.QPN, "of", group.IP)
	if group, err = host.Ready(ctx, "g1", own); err != nil {
		log.Fatal(err)
	}
	fmt.Println("clear to send:", group.ClearToSend)
	// Output:
	// connect to QPN 77 of 10.77.0.200
	// clear to send: true
}

// hostsOf answers on a TCP address like a rocastd with hosts: in its config: one answer for each
// question.
func hostsOf(answers ...client.HostGroup) (box netip.AddrPort, stop func()) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	next := make(chan client.HostGroup, len(answers))
	for _, a := range answers {
		next <- a
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(<-next) })}
	go func() { _ = s.Serve(l) }()
	return l.Addr().(*net.TCPAddr).AddrPort(), func() { s.Close() }
}

// A program that has a loop of its own asks a Fallback which way to go.
func ExampleFallback() {
	now := time.Now()
	f := client.NewFallback(client.Pace{})
	fmt.Println(f.Step(now, client.Tick).Probe) // try the group
	fmt.Println(f.Step(now, client.ProbeWorked).Way)
	order := f.Step(now.Add(time.Minute), client.WentBad)
	fmt.Println(order.Way, "and a probe", order.Look.Sub(now.Add(time.Minute)), "later")
	// Output:
	// true
	// multicast
	// unicast and a probe 1s later
}
