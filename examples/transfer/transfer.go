package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/roce"
)

// transfer is one transfer as the coordinator sees it.
type transfer struct {
	*coordinator
	*request
	name      string
	group     queuePair // the peer of all queue pairs
	receivers []*receiver
}

// receiver is one receiver of a transfer as the coordinator sees it.
type receiver struct {
	*transfer
	ip   netip.Addr
	line *line
	qp   queuePair

	failure error // why its copy is not the file
}

// What the hosts see of a group. Transfers at the same time differ in their QPN.
const (
	firstQPN  roce.QPN = 0x100
	qpns               = 1 << 16
	groupVA            = 1 << 32
	groupRKey          = 0x7a57
)

func (c *coordinator) begin(r *request) *transfer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &transfer{coordinator: c, request: r, name: fmt.Sprintf("transfer-%d", c.transfers)}
	t.group = queuePair{IP: c.groupIP, QPN: firstQPN + roce.QPN(c.transfers%qpns), VA: groupVA, RKey: groupRKey}
	c.transfers++
	for _, ip := range r.To {
		t.receivers = append(t.receivers, &receiver{transfer: t, ip: ip})
	}
	return t
}

func (t *transfer) say(format string, args ...any) {
	fmt.Fprintf(t.out, t.name+": "+format+"\n", args...)
}

// each does something with all receivers at once. An error names the receiver.
func (t *transfer) each(ctx context.Context, do func(*receiver, context.Context) error) error {
	tasks, ctx := errgroup.WithContext(ctx)
	for _, r := range t.receivers {
		tasks.Go(func() error {
			if err := do(r, ctx); err != nil {
				return fmt.Errorf("receiver %v: %w", r.ip, err)
			}
			return nil
		})
	}
	return tasks.Wait()
}

// prepare waits for a receiver and asks it for a queue pair and memory.
func (r *receiver) prepare(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, r.within)
	defer cancel()
	if r.line, err = r.take(ctx, r.ip); err != nil {
		return err
	}
	answer, err := r.line.ask(message{Prepare: memoryFor(r.Bytes)}, r.within)
	if err == nil && answer.QP == nil {
		err = errors.New("it answers without a queue pair")
	}
	if err == nil {
		r.qp = *answer.QP
	}
	return err
}

// connect gives a receiver's queue pair the group for its peer, and tells the box when that is so:
// the group is not clear to send before.
func (r *receiver) connect(ctx context.Context) error {
	answer, err := r.line.ask(message{Connect: &r.group}, r.within)
	if err != nil {
		return err
	}
	_, err = r.api.Confirm(ctx, r.name, client.Confirmation{IP: r.ip.String(), QPN: uint32(r.qp.QPN), State: answer.State, MTU: pathMTU})
	return err
}

// file describes the group. A receiver that refuses data, or is silent for a second while others
// are not, is evicted: the others get the file all the same.
func (t *transfer) file() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nip: %v\nqpn: %d\nmtu: %d\non-fatal: evict\nsilent-after: 1s\nevict: true\n", t.name, t.group.IP, t.group.QPN, pathMTU)
	fmt.Fprintf(&b, "memory: {va: %#x, length: %d, rkey: %#x}\nmembers:\n", t.group.VA, memoryFor(t.Bytes), t.group.RKey)
	fmt.Fprintf(&b, "  - {ip: %v, qpn: %d, psn: %d, role: source}\n", t.From.IP, t.From.QPN, t.From.PSN)
	for _, r := range t.receivers {
		fmt.Fprintf(&b, "  - {ip: %v, qpn: %d, psn: %d, confirm: true, regions: [{va: %#x, length: %d, rkey: %#x}]}\n",
			r.qp.IP, r.qp.QPN, r.qp.PSN, r.qp.VA, memoryFor(t.Bytes), r.qp.RKey)
	}
	return []byte(b.String())
}

// collect lets every receiver save its copy, and compares the copies with what was sent.
func (t *transfer) collect(ctx context.Context, sent string) *result {
	_ = t.each(ctx, func(r *receiver, _ context.Context) error {
		r.failure = r.save(sent)
		return nil
	})
	if group, err := t.api.Group(ctx, t.name); err == nil {
		t.leftOut(group)
	}
	all := &result{Failed: map[netip.Addr]string{}}
	for _, r := range t.receivers {
		if r.failure != nil {
			all.Failed[r.ip] = r.failure.Error()
		} else {
			all.Delivered = append(all.Delivered, r.ip)
		}
	}
	return all
}

func (r *receiver) save(sent string) error {
	answer, err := r.line.ask(message{Save: r.Bytes}, 0)
	if err == nil && answer.Saved != sent {
		err = errors.New("its copy differs from the file")
	}
	return err
}

// leftOut adds why the box no longer waits for a receiver.
func (t *transfer) leftOut(group client.Group) {
	for _, m := range group.Members {
		for _, r := range t.receivers {
			if m.IP == r.ip.String() && m.State == api.LeftOut {
				r.failure = errors.Join(r.failure, errors.New(m.Reason))
			}
		}
	}
}

// close ends the connections to the receivers, and with them what the receivers did not finish.
func (t *transfer) close() {
	for _, r := range t.receivers {
		if r.line != nil {
			r.line.conn.Close()
		}
	}
}
