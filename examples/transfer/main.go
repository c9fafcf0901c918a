// Command transfer is an example of a program that uses package client: it sends a file to several
// hosts at once, which know nothing of groups. A coordinator beside rocastd makes a group for each
// transfer, and removes it afterwards.
//
//	sender                      coordinator                      receivers
//	   │                             │◀── they wait for a transfer ──│
//	   │── 1 request ───────────────▶│                               │
//	   │                             │── 2 memory, queue pair? ─────▶│
//	   │                             │── 3 group; its QPN, IP ──────▶│
//	   │◀─ 4 clear to send ──────────│                               │
//	   │══ 5 WRITEs ════════════════ rocastd ═══════════════════════▶│
//	   │── 6 done ──────────────────▶│── save it; its hash? ────────▶│
//	   │◀─ 7 result ─────────────────│ the group is removed          │
//
// In a real lab:
//
//	box       transfer coordinate -group-ip 10.77.0.100
//	receiver  transfer receive -coordinator 10.77.0.254:4792 -ip 10.77.0.2 -verbs PROGRAM FILE
//	sender    transfer send -coordinator 10.77.0.254:4792 -ip 10.77.0.1 -verbs PROGRAM -to 10.77.0.2,10.77.0.3 FILE
//
// PROGRAM is that of test/softroce/verbs, which is 500 lines of C over libibverbs. The test has
// soft NICs in network namespaces.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
)

// options are the flags of all words.
type options struct {
	socket, listen, groupIP, coordinator, ip, verbs, to string

	within time.Duration
}

func main() {
	word, args := "", os.Args[1:]
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		word, args = args[0], args[1:]
	}
	var o options
	flags := flag.NewFlagSet("transfer", flag.ExitOnError)
	flags.StringVar(&o.socket, "socket", api.DefaultSocket, "rocastd's `socket`")
	flags.StringVar(&o.listen, "listen", ":4792", "`address` of the coordinator")
	flags.StringVar(&o.groupIP, "group-ip", "", "`IP` of the groups")
	flags.DurationVar(&o.within, "within", 10*time.Second, "what a host may take for each step that is no transfer of data")
	flags.StringVar(&o.coordinator, "coordinator", "", "`host:port` of the coordinator")
	flags.StringVar(&o.ip, "ip", "", "`IP` of this host's RDMA device")
	flags.StringVar(&o.verbs, "verbs", "rocast-verbs", "`program` that makes queue pairs")
	flags.StringVar(&o.to, "to", "", "`IPs` of the receivers")
	_ = flags.Parse(args) // it exits
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := o.run(ctx, word, flags.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "transfer:", err)
		os.Exit(1)
	}
}

func (o *options) run(ctx context.Context, word, file string) error {
	switch word {
	case "coordinate":
		groupIP, err := netip.ParseAddr(o.groupIP)
		if err != nil {
			return err
		}
		listener, err := net.Listen("tcp", o.listen)
		if err != nil {
			return err
		}
		fmt.Println("the coordinator listens at", listener.Addr())
		return newCoordinator(client.New(o.socket), groupIP, o.within, os.Stdout).serve(ctx, listener)
	case "receive", "send":
		return o.host(ctx, word, file)
	}
	return fmt.Errorf("%q is not one of coordinate, receive, send", word)
}

func (o *options) host(ctx context.Context, word, file string) error {
	own, err := netip.ParseAddr(o.ip)
	if err != nil {
		return err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", o.coordinator)
	if err != nil {
		return err
	}
	n, l := verbsNIC{program: o.verbs, ip: own}, newLine(ctx, conn)
	if word == "receive" {
		return receiveFile(ctx, n, l, own, file)
	}
	var to []netip.Addr
	for _, text := range strings.Split(o.to, ",") {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return err
		}
		to = append(to, ip)
	}
	began := time.Now()
	result, err := sendFile(ctx, n, l, file, to)
	return report(os.Stdout, result, err, began)
}

// report prints who has the file. Its error says that not all have.
func report(out io.Writer, r *result, err error, began time.Time) error {
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "after %.1f s %d receivers have the file: %v\n", time.Since(began).Seconds(), len(r.Delivered), r.Delivered)
	var without []string
	for ip, reason := range r.Failed {
		without = append(without, fmt.Sprintf("%v lacks the file: %s", ip, reason))
	}
	if without != nil {
		return errors.New(strings.Join(without, "; "))
	}
	return nil
}
