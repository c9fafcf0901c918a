package desired

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// Config says where the desired groups are.
type Config struct {
	Endpoints []string           // URLs of etcd's members
	Prefix    string             // before each key; without a slash at its end
	Box       string             // the name of this box; no other box may have it
	TLS       *tls.Config        // nil: the endpoints are reached without TLS
	CheckName func(string) error // refuses what is no name of a group; nil: any text is one
	Lease     time.Duration      // how long a claim outlives a box that is silent, in whole seconds
}

// Answers to a change.
var (
	ErrExists  = errors.New("a group has this name")
	ErrMissing = errors.New("no group has this name")
	ErrChanged = errors.New("the group was changed by another writer meanwhile")
	ErrNotRoot = errors.New("this box is not the root of the group at present")
)

var errNoAnswerYet = errors.New("it has not answered since the start")

// A request is given up after requestTime. It is shorter than the time that a client of the API
// waits for an answer.
const requestTime = 5 * time.Second

// Desired is a connection to the desired groups.
type Desired struct {
	config Config
	log    *zap.Logger
	client *clientv3.Client

	mu      sync.Mutex
	entries map[string]Entry
	lease   clientv3.LeaseID // 0: none; then nothing can be claimed
	// Why there is no lease, and why what etcd has was not read when it was asked last; nil: there
	// is one, and it was read.
	noLease, notRead error
	badNames         map[string]bool // names of keys that are none, of which the log says so
}

// Entry is what the boxes know of one group.
type Entry struct {
	Text     []byte // the group file
	Revision int64  // grows with every change of the group file
	Created  int64  // the revision that created the group; one that is created again has another
	Begun    bool   // a box has claimed the group before
	Last     string // the box that has claimed it last; "": none, or a box of an earlier release
	Members  []byte // the state of the members; nil: none was stored
	Root     string // the box that has claimed it; "": none
	Held     bool   // this box has claimed it, and the claim lives as long as its lease
	Claim    int64  // grows with every claim
	Report   string // what that box says of it; "": nothing

	lease     clientv3.LeaseID // of the claim
	begunAt   int64            // the revision of the last claim; 0: there was none
	membersAt int64            // the revision of Members; 0: there are none
	since     [len(kinds)]int64
}

// Open connects to etcd. It does not wait for an answer: a box must be able to start, and to
// restore what its own state directory has, while etcd is down.
func Open(config Config, log *zap.Logger) (*Desired, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: config.Endpoints, TLS: config.TLS, Logger: zap.NewNop(),
		DialKeepAliveTime: config.Lease, DialKeepAliveTimeout: config.Lease,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: againAfter, Multiplier: 1, Jitter: 0.2, MaxDelay: againAfter},
			MinConnectTimeout: requestTime,
		})},
	})
	if err != nil {
		return nil, fmt.Errorf("connect to etcd at %s: %w", strings.Join(config.Endpoints, ", "), err)
	}
	return &Desired{config: config, log: log, client: client, entries: map[string]Entry{}, badNames: map[string]bool{}, noLease: errNoAnswerYet, notRead: errNoAnswerYet}, nil
}

// Close ends the connection. The box's claims end with its lease, if Run has not given them back.
func (d *Desired) Close() error { return d.client.Close() }

// Away returns why etcd cannot be relied on at present: it did not answer when this box asked last,
// or has never been read. nil: it answers.
func (d *Desired) Away() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.notRead != nil {
		return d.notRead
	}
	return d.noLease
}

// Box returns the name of this box.
func (d *Desired) Box() string { return d.config.Box }

// Entry returns a group as it was last heard of.
func (d *Desired) Entry(name string) (Entry, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.entries[name]
	e.Held, e.Claim = e.Root == d.config.Box && e.lease == d.lease, e.since[roots]
	return e, ok
}

// Names returns the names of all groups that etcd has something of.
func (d *Desired) Names() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.entries))
}

// Create adds a group, or returns ErrExists.
func (d *Desired) Create(ctx context.Context, name string, text []byte) (revision int64, err error) {
	key := d.key(groups, name)
	return d.change(ctx, ErrExists,
		[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
		clientv3.OpPut(key, string(text)))
}

// Update replaces the file of a group, if the group still has the given revision. Otherwise it
// returns ErrChanged.
func (d *Desired) Update(ctx context.Context, name string, text []byte, from int64) (revision int64, err error) {
	key := d.key(groups, name)
	return d.change(ctx, ErrChanged,
		[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", from)},
		clientv3.OpPut(key, string(text), clientv3.WithPrevKV()))
}

// Remove removes a group and everything that is stored about it, or returns ErrMissing. With from,
// which is not 0, it returns ErrChanged unless the group still has that revision.
func (d *Desired) Remove(ctx context.Context, name string, from int64) error {
	key := d.key(groups, name)
	ops := make([]clientv3.Op, 0, len(kinds))
	for k := range kinds {
		ops = append(ops, clientv3.OpDelete(d.key(kind(k), name)))
	}
	otherwise, still := ErrMissing, clientv3.Compare(clientv3.CreateRevision(key), ">", 0)
	if from != 0 {
		otherwise, still = ErrChanged, clientv3.Compare(clientv3.ModRevision(key), "=", from)
	}
	_, err := d.change(ctx, otherwise, []clientv3.Cmp{still}, ops...)
	return err
}

// Claim makes this box the root of a group, unless another box is. e is what this box knows of the
// group. If the group's file has changed since, or a box has claimed the group or removed it and
// created it again, the claim fails: what the box decided may not be right any more.
func (d *Desired) Claim(ctx context.Context, name string, e Entry) (claimed bool, err error) {
	root := d.key(roots, name)
	wanted := clientv3.Compare(clientv3.ModRevision(d.key(groups, name)), "=", e.Revision)
	last := clientv3.Compare(clientv3.ModRevision(d.key(begins, name)), "=", e.begunAt)
	// A box that was restarted finds its own claim, which would end with the lease of its last run.
	for _, free := range []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(root), "=", 0), clientv3.Compare(clientv3.Value(root), "=", d.config.Box),
	} {
		if claimed, err = d.claim(ctx, name, wanted, last, free); claimed || err != nil {
			break
		}
	}
	return claimed, err
}

// TakeOver makes this box the root of a group, whichever box was, unless the group is removed. e is
// what this box knows of the group. If the group was created again since, or the state of the
// members has changed, the box has begun with an older one, and it takes nothing over.
func (d *Desired) TakeOver(ctx context.Context, name string, e Entry) (claimed bool, err error) {
	if !e.Wanted() {
		return false, nil
	}
	return d.claim(ctx, name, clientv3.Compare(clientv3.CreateRevision(d.key(groups, name)), "=", e.Created),
		clientv3.Compare(clientv3.ModRevision(d.key(members, name)), "=", e.membersAt))
}

func (d *Desired) claim(ctx context.Context, name string, conditions ...clientv3.Cmp) (claimed bool, err error) {
	lease, err := d.leased()
	if err != nil {
		return false, err
	}
	answer, err := d.commit(ctx, lease, conditions,
		clientv3.OpPut(d.key(roots, name), d.config.Box, clientv3.WithLease(lease)), clientv3.OpPut(d.key(begins, name), d.config.Box))
	return err == nil && answer.Succeeded, err
}

// Report says to all boxes how a group is that this box has claimed.
func (d *Desired) Report(ctx context.Context, name, report string) error {
	lease, err := d.leased()
	if err != nil {
		return err
	}
	_, err = d.commit(ctx, lease, d.mine(name), clientv3.OpPut(d.key(reports, name), report, clientv3.WithLease(lease)))
	return err
}

// PutMembers stores the state of the members of a group that this box has claimed. created is that
// of the group's entry; 0: it is not known. PutMembers returns ErrNotRoot if the claim has ended,
// or if it is of another group of this name, which was created since.
func (d *Desired) PutMembers(ctx context.Context, name string, created int64, state []byte) error {
	op := clientv3.OpPut(d.key(members, name), string(state))
	if state == nil {
		op = clientv3.OpDelete(d.key(members, name))
	}
	conditions := d.mine(name)
	if created != 0 {
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(d.key(groups, name)), "=", created))
	}
	_, err := d.change(ctx, ErrNotRoot, conditions, op)
	return err
}

// Yield ends the claim of a group that this box does not want any more.
func (d *Desired) Yield(ctx context.Context, name string) error {
	_, err := d.commit(ctx, 0, d.mine(name), clientv3.OpDelete(d.key(roots, name)), clientv3.OpDelete(d.key(reports, name)))
	return err
}

// mine is the condition that this box has claimed a group.
func (d *Desired) mine(name string) []clientv3.Cmp {
	return []clientv3.Cmp{clientv3.Compare(clientv3.Value(d.key(roots, name)), "=", d.config.Box)}
}

// leased returns the lease for a claim.
func (d *Desired) leased() (clientv3.LeaseID, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lease == 0 {
		return 0, d.unreachable(errors.New("it has granted this box no lease yet"))
	}
	return d.lease, nil
}

// change commits a transaction and returns its revision, or refused if the conditions do not hold.
func (d *Desired) change(ctx context.Context, refused error, conditions []clientv3.Cmp, ops ...clientv3.Op) (int64, error) {
	answer, err := d.commit(ctx, 0, conditions, ops...)
	if err != nil {
		return 0, err
	}
	if !answer.Succeeded {
		return 0, refused
	}
	return answer.Header.Revision, nil
}

// commit carries out a transaction. lease is that of the keys that roots and reports are put with.
func (d *Desired) commit(ctx context.Context, lease clientv3.LeaseID, conditions []clientv3.Cmp, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	answer, err := d.client.Txn(ctx).If(conditions...).Then(ops...).Commit()
	if err != nil {
		return nil, d.unreachable(err)
	}
	if answer.Succeeded {
		d.know(ops, lease, answer)
	}
	return answer, nil
}

// know applies this box's own change, which etcd has answered.
func (d *Desired) know(ops []clientv3.Op, lease clientv3.LeaseID, answer *clientv3.TxnResponse) {
	d.mu.Lock()
	defer d.mu.Unlock()
	revision := answer.Header.Revision
	for i, op := range ops {
		k, name, ok := d.parseKey(op.KeyBytes())
		if !ok {
			continue
		}
		e := d.entries[name]
		if op.IsDelete() {
			e.set(k, revision, nil)
		} else {
			pair := &mvccpb.KeyValue{Value: op.ValueBytes(), CreateRevision: revision, ModRevision: revision, Lease: int64(lease)}
			if before := answer.Responses[i].GetResponsePut().GetPrevKv(); before != nil { // of an Update
				pair.CreateRevision = before.CreateRevision
			}
			e.set(k, revision, pair)
		}
		d.entries[name] = e
	}
}

// unreachable is the error of a request that etcd did not answer. Whether etcd has carried it out
// is not known.
func (d *Desired) unreachable(err error) error {
	return fmt.Errorf("etcd at %s does not answer, and running groups run on; try again when it does: %w",
		strings.Join(d.config.Endpoints, ", "), d.cause(err))
}
