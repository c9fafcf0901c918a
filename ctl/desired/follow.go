package desired

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
)

// againAfter is the pause before etcd is asked again.
const againAfter = 500 * time.Millisecond

// Run follows etcd until ctx is done. It calls changed with the names of the groups of which
// something has changed, one call after the other, and with all names when it has read everything:
// at the start, after it had lost etcd, and when the box has got a new lease, so that its claims
// have to be made again. At its end it gives the lease back, and with it the claims.
func (d *Desired) Run(ctx context.Context, changed func(names []string)) error {
	tasks, ctx := errgroup.WithContext(ctx)
	renewed := make(chan struct{}, 1)
	tasks.Go(func() error { return d.keepLease(ctx, renewed) })
	tasks.Go(func() error { return d.follow(ctx, renewed, changed) })
	return tasks.Wait()
}

// follow keeps the entries as etcd has them.
func (d *Desired) follow(ctx context.Context, renewed <-chan struct{}, changed func(names []string)) error {
	for ctx.Err() == nil {
		at, err := d.readAll(ctx)
		d.setRead(d.cause(err))
		if err == nil {
			changed(d.names())
			err = d.watch(ctx, at+1, renewed, changed)
		}
		d.log.Debug("everything is read from etcd again", zap.Error(err))
		sleep(ctx, againAfter)
	}
	return nil
}

// readAll reads everything and returns the revision at which it was read. A group that is gone
// keeps an empty entry until its name was told.
func (d *Desired) readAll(ctx context.Context) (revision int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	for tries := 3; ; tries-- {
		answer, err := d.client.Get(ctx, d.config.Prefix+"/", clientv3.WithPrefix())
		if err != nil {
			return 0, err
		}
		if d.take(answer, tries > 1) {
			return answer.Header.Revision, nil
		}
	}
}

// take replaces the entries by an answer of etcd. With mayRefuse it refuses an answer that is older
// than a change of this box: that change would be undone. If etcd gives old answers several times,
// somebody has restored it from a backup, and the caller takes the old answer.
func (d *Desired) take(answer *clientv3.GetResponse, mayRefuse bool) (taken bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.entries {
		if mayRefuse && slices.Max(e.since[:]) > answer.Header.Revision {
			return false
		}
	}
	for name := range d.entries {
		d.entries[name] = Entry{}
	}
	for _, pair := range answer.Kvs {
		if k, name, ok := d.parseKey(pair.Key); ok {
			e := d.entries[name]
			e.set(k, pair.ModRevision, pair)
			d.entries[name] = e
		}
	}
	return true
}

// names returns the names of all groups, and forgets the groups of which etcd has nothing.
func (d *Desired) names() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := make([]string, 0, len(d.entries))
	for name, e := range d.entries {
		names = append(names, name)
		if e.empty() {
			delete(d.entries, name)
		}
	}
	return names
}

// watch applies what changes from a revision on, until etcd does not answer any more.
func (d *Desired) watch(ctx context.Context, from int64, renewed <-chan struct{}, changed func(names []string)) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	events := d.client.Watch(ctx, d.config.Prefix+"/", clientv3.WithPrefix(), clientv3.WithRev(from))
	for {
		select {
		case <-renewed:
			changed(d.names())
		case answer, open := <-events:
			if err := answer.Err(); err != nil {
				return err
			}
			if !open {
				return errors.New("the watch ended")
			}
			if names := d.apply(answer.Events); len(names) > 0 {
				changed(names)
			}
		}
	}
}

func (d *Desired) apply(events []*clientv3.Event) (names []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	seen := map[string]bool{}
	for _, ev := range events {
		k, name, ok := d.parseKey(ev.Kv.Key)
		if !ok {
			continue
		}
		e := d.entries[name]
		if ev.Type == clientv3.EventTypeDelete {
			e.set(k, ev.Kv.ModRevision, nil)
		} else {
			e.set(k, ev.Kv.ModRevision, ev.Kv)
		}
		d.entries[name] = e
		if e.empty() {
			delete(d.entries, name)
		}
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

// keepLease keeps a lease alive, and takes a new one when the lease has ended.
func (d *Desired) keepLease(ctx context.Context, renewed chan<- struct{}) error {
	for lost := false; ctx.Err() == nil; {
		held, err := d.holdLease(ctx, renewed)
		if ctx.Err() != nil {
			d.setLease(0, err)
			return nil
		}
		err = d.cause(err)
		d.setLease(0, err)
		if held || !lost {
			d.log.Warn("etcd does not answer; running groups run on, and changes are refused",
				zap.Strings("endpoints", d.config.Endpoints), zap.Error(err))
		}
		lost = true
		sleep(ctx, againAfter)
	}
	return nil
}

// holdLease takes a lease and returns when it has ended, or when ctx is done: then it gives the
// lease back. Held reports whether there was a lease.
func (d *Desired) holdLease(ctx context.Context, renewed chan<- struct{}) (held bool, err error) {
	asking, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	lease, err := d.client.Grant(asking, int64(d.config.Lease/time.Second))
	if err != nil {
		return false, err
	}
	defer d.revoke(lease.ID)
	alive, err := d.client.KeepAlive(ctx, lease.ID)
	if err != nil {
		return false, err
	}
	d.log.Info("etcd has granted a lease")
	d.setLease(lease.ID, nil)
	select {
	case renewed <- struct{}{}:
	default:
	}
	for range alive {
	}
	return true, rpctypes.ErrLeaseNotFound
}

// revoke gives a lease back, so that other boxes need not wait for its end.
func (d *Desired) revoke(lease clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = d.client.Revoke(ctx, lease) // it ends by itself otherwise
}

func (d *Desired) setLease(lease clientv3.LeaseID, why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lease, d.noLease = lease, why
}

func (d *Desired) setRead(why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notRead = why
}

func sleep(ctx context.Context, t time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(t):
	}
}
