package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rocast/rocast/bench/beside"
	"github.com/rocast/rocast/bench/lab"
	"github.com/rocast/rocast/bench/peer"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/lossy"
	"github.com/rocast/rocast/internal/testlab/slow"
	"github.com/rocast/rocast/roce"
)

const (
	receivers = 3
	pathMTU   = 1024
	firstPSN  = 1000
	// receives are posted on each queue pair: more than there are blocks on their way.
	receives = 1024
	// Exponents of the local ACK timeout: 67 ms, as perftest has it, and 1.1 s where no packet is
	// lost, so that a machine that is busy for a moment does not make the source go back.
	usualTimeout = 14
	calmTimeout  = 18
)

// layout is how a site is built. The link of each host has a rate, in the direction from the host:
// no receiver is sent more than one of them carries.
type layout struct {
	receivers int
	stick     bool   // the box is beside the switch, with one port (stick.go)
	rate      int    // bits per second; 0: nothing limits the links
	timeout   uint8  // of the queue pairs, an exponent
	memory    int    // bytes of each host
	bin       string // directory of rocastd
}

// site is a source and receivers with soft NICs around a box with rocastd.
type site struct {
	layout
	bed    *bed.Bed
	daemon *peer.Daemon
	spins  *lab.Spinner // the daemon, whose threads spin while packets are on their way
	hosts  []*host
	box    []int                  // kernel threads that receive at the box's ports
	mesh   []map[int]*endpoint.QP // of each host, by the host at the other end
	qpn    roce.QPN               // the next one
	loss   []*lossy.Link
	beside *beside.Box // nil: the hosts are at the box's ports
}

// host is a machine of the site.
type host struct {
	*bed.Host
	memory   []byte
	nic      int          // the thread of its soft NIC
	napi     []int        // kernel threads that receive for it
	programs atomic.Int64 // CPU time of its programs, nanoseconds
}

// open builds a site. Close removes it.
func open(ctx context.Context, p layout) (s *site, err error) {
	s = &site{layout: p, qpn: 16}
	if err := s.build(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("build the lab: %w", err), s.close())
	}
	return s, nil
}

func (s *site) build(ctx context.Context) (err error) {
	if s.bed, err = bed.New(bed.Options{Hosts: 1 + s.receivers}); err != nil {
		return err
	}
	for i, h := range s.bed.Hosts {
		own := &host{Host: h, memory: make([]byte, s.memory)}
		if i == 0 {
			own.memory = bed.Random(s.memory, 1)
		}
		s.hosts = append(s.hosts, own)
		if err := h.RNIC.Register(rnic.Region{VA: memoryVA, RKey: memoryRKey, Access: rnic.RemoteWrite, Bytes: own.memory}); err != nil {
			return err
		}
		if own.nic, err = h.RNIC.OwnThread(); err != nil {
			return err
		}
		if own.napi, err = lab.ThreadNAPI(h.NS, h.End.Name); err != nil {
			return err
		}
	}
	if err := s.shape(s.rate); err != nil {
		return err
	}
	box, ports, config := s.bed.Box, s.bed.Ports(), ""
	if s.stick {
		if s.beside, err = beside.Put(s.bed, s.rate); err != nil {
			return err
		}
		box, ports, config = s.beside.NS, []string{s.beside.Port.Name}, beside.SharesCopies
	}
	if s.daemon, err = peer.StartDaemon(ctx, s.bin, box, ports, config); err != nil {
		return err
	}
	if s.spins, err = lab.Follow(s.daemon.PID()); err != nil {
		return err
	}
	if s.box, err = lab.ThreadNAPI(box, ports...); err != nil {
		return err
	}
	if s.stick {
		for _, h := range s.hosts[1:] {
			if err := s.beside.StartEdge(filepath.Join(s.bin, "rocast-edge"), h.Host); err != nil {
				return err
			}
		}
	}
	return s.connect(ctx)
}

// shape gives the links from all hosts another rate. Nothing is under way.
func (s *site) shape(rate int) error {
	s.rate = rate
	for _, h := range s.hosts {
		if err := slow.Shape(h.End, rate); err != nil {
			return err
		}
	}
	return nil
}

// connect connects every host with every other one.
func (s *site) connect(ctx context.Context) error {
	for range s.hosts {
		s.mesh = append(s.mesh, map[int]*endpoint.QP{})
	}
	for a := range s.hosts {
		for b := range a {
			pair := [2]int{a, b}
			for k, i := range pair {
				qp, err := s.newQP(s.hosts[i], s.qpn+roce.QPN(k), 0)
				if err != nil {
					return err
				}
				s.mesh[i][pair[1-k]] = qp
			}
			for k, i := range pair {
				other := endpoint.Peer{IP: s.hosts[pair[1-k]].IP, QPN: s.qpn + roce.QPN(1-k)}
				if err := s.mesh[i][pair[1-k]].Connect(ctx, other); err != nil {
					return err
				}
			}
			s.qpn += 2
		}
	}
	return nil
}

// newQP returns a queue pair with receives.
func (s *site) newQP(h *host, qpn roce.QPN, psn roce.PSN) (*endpoint.QP, error) {
	c := bed.QP(qpn, psn, pathMTU)
	c.SendDepth, c.RecvDepth, c.Timeout = receives, receives, s.timeout
	qp, err := h.RNIC.NewQP(c)
	for range receives {
		if err == nil {
			err = qp.PostRecv(0, nil)
		}
	}
	return qp, err
}

const groupName = "apps"

// group makes a group of all hosts with further keys in its file. It returns the queue pairs that
// have the group as peer, as a schedule names them. leave removes all of that.
func (s *site) group(ctx context.Context, keys string) (qps []map[int]*endpoint.QP, remove func() error, err error) {
	qpn, ip := s.qpn, s.bed.GroupIP()
	s.qpn++
	var file strings.Builder
	fmt.Fprintf(&file, "name: %s\nip: %v\nqpn: %d\nmtu: %d\nmemory: {va: %#x, length: %d, rkey: %#x}\n%s\nmembers:\n",
		groupName, ip, qpn, pathMTU, memoryVA, len(s.hosts[0].memory), memoryRKey, keys)
	var all []*endpoint.QP
	for i, h := range s.hosts {
		qp, err := s.newQP(h, qpn, firstPSN)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, qp)
		if i == 0 {
			qps = append(qps, map[int]*endpoint.QP{toAll: qp})
			fmt.Fprintf(&file, "  - {ip: %v, qpn: %d, psn: %d, role: source}\n", h.IP, qpn, firstPSN)
			continue
		}
		qps = append(qps, map[int]*endpoint.QP{0: qp})
		fmt.Fprintf(&file, "  - {ip: %v, qpn: %d, psn: %d, regions: [{va: %#x, length: %d, rkey: %#x}]}\n",
			h.IP, qpn, firstPSN+7*i, memoryVA, len(h.memory), memoryRKey) // each receiver expects PSNs of its own
	}
	if err := s.daemon.Create(ctx, []byte(file.String())); err != nil {
		return nil, nil, err
	}
	for i, qp := range all {
		expects := roce.PSN(firstPSN + 7*i)
		if err := qp.Connect(ctx, endpoint.Peer{IP: ip, QPN: qpn, PSN: expects}); err != nil {
			return nil, nil, err
		}
	}
	return qps, func() error {
		for _, qp := range all {
			qp.Destroy()
		}
		return s.daemon.Remove(ctx, groupName)
	}, nil
}

// lose makes the receivers' links lose so many packets of a million, in each direction.
func (s *site) lose(perMillion int) error {
	if s.loss == nil {
		for i, h := range s.hosts[1:] {
			link, err := lossy.Attach(h.End, uint32(i+1), perMillion)
			if err != nil {
				return err
			}
			s.loss = append(s.loss, link)
		}
	}
	var errs []error
	for _, link := range s.loss {
		errs = append(errs, link.Lose(perMillion))
	}
	return errors.Join(errs...)
}

func (s *site) close() error {
	var errs []error
	for _, link := range s.loss {
		errs = append(errs, link.Close())
	}
	if s.spins != nil {
		s.spins.Close()
	}
	if s.daemon != nil {
		errs = append(errs, s.daemon.Stop())
	}
	if s.beside != nil {
		errs = append(errs, s.beside.Close())
	}
	if s.bed != nil {
		errs = append(errs, s.bed.Close())
	}
	return errors.Join(errs...)
}

// clocks are the CPU times of all at one moment, and the bytes that the source has sent.
type clocks struct {
	at                     time.Time
	source, receivers, box time.Duration
	bytes                  uint64
	port                   uint64 // bytes that have left the port of a box beside the switch
	ticks                  []lab.Ticks
}

func (s *site) clocks() (c clocks, err error) {
	errs := make([]error, 4)
	c.at = time.Now()
	for i, h := range s.hosts {
		used, err := h.used()
		errs = append(errs, err)
		if i == 0 {
			c.source = used
		} else {
			c.receivers += used
		}
	}
	c.box, errs[0] = lab.CPUTimes(append([]int{s.daemon.PID()}, s.box...))
	c.ticks, errs[1] = s.spins.AllTicks()
	c.bytes, errs[2] = slow.Sent(s.hosts[0].End)
	if s.stick {
		c.port, errs[3] = s.beside.Sent()
	}
	return c, errors.Join(errs...)
}

// used is the CPU time of a host: of its soft NIC, of its programs, and of the kernel where it
// receives for the host.
func (h *host) used() (time.Duration, error) {
	nic, err := lab.ThreadTime(h.nic)
	kernel, errKernel := lab.CPUTimes(h.napi)
	return nic + kernel + time.Duration(h.programs.Load()), errors.Join(err, errKernel)
}

// load is what a measurement took: CPUs that were used, and the share of the source's link.
type load struct {
	source, receivers, box float64 // CPUs
	busiest                float64 // share of the time in which the busiest CPU was not idle, without the daemon
	spinner                float64 // CPUs that the daemon used, which may have spun
	link                   float64 // share of what the link of the source carries; 0: nothing limits it
	sent                   uint64  // bytes that have left the source
	portBytes              uint64  // that have left the port of a box beside the switch
	sourceTime             time.Duration
	elapsed                float64 // seconds
}

// since returns the load since an earlier moment.
func (s *site) since(before clocks) (load, error) {
	after, err := s.clocks()
	if err != nil {
		return load{}, err
	}
	seconds := after.at.Sub(before.at).Seconds()
	used := load{
		source: (after.source - before.source).Seconds() / seconds, receivers: (after.receivers - before.receivers).Seconds() / seconds,
		box: (after.box - before.box).Seconds() / seconds, busiest: lab.Busiest(before.ticks, after.ticks), spinner: lab.Spun(before.ticks, after.ticks),
		sent: after.bytes - before.bytes, portBytes: after.port - before.port,
		sourceTime: after.source - before.source, elapsed: seconds,
	}
	if s.rate > 0 {
		used.link = float64(used.sent) * byteRate / float64(s.rate) / seconds
	}
	return used, nil
}
