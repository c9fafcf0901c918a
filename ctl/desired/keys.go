package desired

import (
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// kind is what a key says about a group.
type kind int

const (
	groups kind = iota
	begins
	members
	roots
	reports
)

var kinds = [...]string{groups: "groups", begins: "begun", members: "members", roots: "roots", reports: "reports"}

func (d *Desired) key(k kind, name string) string {
	return d.config.Prefix + "/" + kinds[k] + "/" + name
}

// parseKey is the inverse of key. Other programs may have keys below the prefix: these are not ok,
// and neither is a name that no group can have. The caller holds d.mu.
func (d *Desired) parseKey(key []byte) (k kind, name string, ok bool) {
	rest, ok := strings.CutPrefix(string(key), d.config.Prefix+"/")
	if !ok {
		return 0, "", false
	}
	word, name, ok := strings.Cut(rest, "/")
	for k := range kinds {
		if ok && kinds[k] == word && name != "" {
			return kind(k), name, d.isName(name)
		}
	}
	return 0, "", false
}

// maxBadNames bounds the names that the log has.
const maxBadNames = 100

func (d *Desired) isName(name string) bool {
	if d.config.CheckName == nil {
		return true
	}
	err := d.config.CheckName(name)
	if err != nil && !d.badNames[name] && len(d.badNames) < maxBadNames {
		d.badNames[name] = true
		d.log.Warn("a key in etcd names no group, and is left out; delete the key", zap.Error(err))
	}
	return err == nil
}

// set stores in an entry the value that a key has had since a revision of etcd. pair is nil if the
// key was deleted. This box stores its own changes before etcd reports them, so set ignores a
// revision older than the stored one.
func (e *Entry) set(k kind, revision int64, pair *mvccpb.KeyValue) {
	if revision < e.since[k] {
		return
	}
	e.since[k] = revision
	var value []byte
	if pair != nil {
		value = pair.Value
	}
	switch k {
	case groups:
		e.Text, e.Revision, e.Created = value, 0, 0
		if pair != nil {
			e.Revision, e.Created = pair.ModRevision, pair.CreateRevision
		}
	case begins:
		e.Begun, e.Last, e.begunAt = pair != nil, string(value), 0
		if pair != nil {
			e.begunAt = pair.ModRevision
		}
	case members:
		e.Members, e.membersAt = value, 0
		if pair != nil {
			e.membersAt = pair.ModRevision
		}
	case roots:
		e.Root, e.lease = string(value), 0
		if pair != nil {
			e.lease = clientv3.LeaseID(pair.Lease)
		}
	case reports:
		e.Report = string(value)
	}
}

// empty reports whether etcd has nothing of the group.
func (e *Entry) empty() bool {
	return e.Revision == 0 && !e.Begun && e.Members == nil && e.Root == "" && e.Report == ""
}

// Wanted reports whether the group is to exist.
func (e *Entry) Wanted() bool { return e.Revision > 0 }

// IsCarriedLastBy reports whether no other box has claimed the group since this box carried it, and
// the group was not removed and created again.
func (e *Entry) IsCarriedLastBy(box string) bool {
	return e.Begun && (e.Last == box || e.Last == "") // "": an earlier release does not tell
}
