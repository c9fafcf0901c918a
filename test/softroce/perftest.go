package softroce

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/rocast/rocast/test/softroce/control"
)

const (
	// perftestPort is where servers listen. stateListen is the state LISTEN as /proc/net/tcp prints
	// it.
	perftestPort = 18515
	stateListen  = "0A"
)

// StartPerftest starts one of perftest's tools as a server and returns when a client can connect.
// The server serves one client and ends.
func (g *Guest) StartPerftest(ctx context.Context, tool string, args ...string) (*control.Process, error) {
	all, err := g.perftestArgs(ctx, tool, args)
	if err != nil {
		return nil, err
	}
	p, err := g.Start(all...)
	if err != nil {
		return nil, err
	}
	_, err = g.Run(ctx, "dash", "-c", "until "+listens(slices.Contains(args, "-R"))+"; do sleep 0.02; done")
	return p, err
}

// listens is a command that fails unless a server waits for a client, which connects by RDMA-CM or
// by TCP.
func listens(byCM bool) string {
	if byCM {
		return fmt.Sprintf("rdma resource show cm_id | grep LISTEN | grep -q :%d", perftestPort)
	}
	return fmt.Sprintf("grep -q ':%04X 0*:0000 %s' /proc/net/tcp /proc/net/tcp6", perftestPort, stateListen)
}

// Perftest is the last line in the table of a bandwidth test.
type Perftest struct {
	Bytes, Iterations int
	PeakGbps, Gbps    float64
	Output            string // everything that the tool printed
}

// RunPerftest runs one of perftest's bandwidth tools as a client of the server at addr. addr may be
// the IP of a group.
func (g *Guest) RunPerftest(ctx context.Context, addr netip.Addr, tool string, args ...string) (Perftest, error) {
	all, err := g.perftestArgs(ctx, tool, append(args, "--report_gbits", addr.String()))
	if err != nil {
		return Perftest{}, err
	}
	out, err := g.Run(ctx, all...)
	if err != nil {
		return Perftest{Output: out}, fmt.Errorf("%w\n%s", err, out)
	}
	return parsePerftest(out)
}

func (g *Guest) perftestArgs(ctx context.Context, tool string, args []string) ([]string, error) {
	index, err := g.GIDIndex(ctx, g.Addr)
	// -F: perftest does not complain about the frequency of the CPU.
	return append([]string{tool, "-F", "-d", g.Device, "-x", index}, args...), err
}

// parsePerftest reads the line behind "#bytes #iterations BW peak BW average MsgRate".
func parsePerftest(out string) (Perftest, error) {
	result := Perftest{Output: out}
	_, table, found := strings.Cut(out, "#bytes")
	lines := strings.Split(table, "\n")
	if !found || len(lines) < 2 {
		return result, fmt.Errorf("no result in perftest's output:\n%s", out)
	}
	_, err := fmt.Sscan(lines[1], &result.Bytes, &result.Iterations, &result.PeakGbps, &result.Gbps)
	if err != nil {
		return result, fmt.Errorf("read perftest's result %s: %w", strconv.Quote(lines[1]), err)
	}
	return result, nil
}
