package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rocast/rocast/bench/hosts"
	"github.com/rocast/rocast/bench/lab"
	"github.com/rocast/rocast/bench/peer"
	"github.com/rocast/rocast/bench/report"
	"github.com/rocast/rocast/bench/workload"
)

const (
	verified       = 300 // copies for each receiver before anything is measured
	verifyPatience = 20 * time.Second
	warmCopies     = 2000
	warmPatience   = 20 * time.Second
)

// stage is a contestant at work in a lab of its own.
type stage struct {
	undo
	peer      *peer.Peer
	setting   peer.Setting
	forwarder *peer.Forwarder
	hosts     *hosts.Hosts
	window    int
	threads   []int // of the box's NAPI
	softirqs  []int // threads of the switch's CPUs
}

// excuse returns the reason why a contestant does not take part in a setting, or "".
func excuse(p *peer.Peer, s report.Setting) string {
	cpus, err := lab.SplitCPUs(s.Workers)
	if err != nil {
		return err.Error()
	}
	w := &workload.Workload{Payload: s.Payload, Receivers: s.Receivers, Groups: s.Groups}
	return p.Excuse(peer.Setting{Workload: w, Workers: s.Workers, CPUs: cpus})
}

// raise builds the lab, starts the contestant and the hosts, and verifies the copies. With
// threaded, the box receives frames in threads whose CPU time can be read; otherwise in the
// sender's thread.
func raise(ctx context.Context, p *peer.Peer, s report.Setting, threaded bool) (*stage, error) {
	st := &stage{peer: p}
	err := st.raise(s, threaded)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(err, st.close())
	}
	return st, nil
}

func (st *stage) raise(s report.Setting, threaded bool) (err error) {
	st.setting.Workers = s.Workers
	if st.setting.CPUs, err = lab.SplitCPUs(s.Workers); err != nil {
		return err
	}
	size := workload.Workload{Payload: s.Payload}
	if st.setting.Lab, err = lab.New(lab.Options{Receivers: s.Receivers, MTU: size.MTU(), Queues: s.Workers}); err != nil {
		return err
	}
	st.later(st.setting.Lab.Close)
	if st.setting.Workload, err = st.setting.Lab.Workload(s.Payload, s.Groups); err != nil {
		return err
	}
	if st.forwarder, err = st.peer.Start(st.setting); err != nil {
		return err
	}
	st.later(st.forwarder.Stop)
	st.window = hosts.Window
	if st.peer.Window != nil {
		st.window = st.peer.Window(st.setting)
	}
	st.hosts, err = hosts.Open(st.setting.Lab, hosts.Options{
		Workload: st.setting.Workload, Hot: s.Pattern == "hot", CPU: st.setting.CPUs.Hosts,
		Rewriting: st.peer.Rewriting, Merges: st.peer.Merges, Window: st.window,
	})
	if err != nil {
		return err
	}
	st.later(st.hosts.Close)
	if threaded {
		cpu := st.setting.CPUs.Hosts
		if st.peer.InKernel {
			cpu = st.setting.CPUs.Switch[0]
		}
		if st.threads, err = st.setting.Lab.ThreadNAPI(cpu); err != nil {
			return err
		}
	}
	if st.softirqs, err = lab.SoftirqThreads(st.setting.CPUs.Switch); err != nil {
		return err
	}
	if err := st.hosts.Verify(verified, verifyPatience); err != nil {
		return fmt.Errorf("verify copies: %w", err)
	}
	return nil
}

// undo has the functions that remove what raise made, the latest first.
type undo []func() error

func (u *undo) later(f func() error) { *u = append(*u, f) }

func (u *undo) close() error {
	var errs []error
	for i := len(*u) - 1; i >= 0; i-- {
		errs = append(errs, (*u)[i]())
	}
	return errors.Join(errs...)
}
