package groupfile

import (
	"net/netip"
	"slices"

	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// ID identifies a receiver in its group in the same way as its feedback does: by the host's IP and
// by the remote QPN of the receiver's QP.
type ID struct {
	IP        netip.Addr
	RemoteQPN roce.QPN
}

// ID returns the ID of the member.
func (m *Member) ID() ID { return ID{m.IP, m.RemoteQPN} }

// Receiver returns the index of a receiver, or -1 if the receiver is not in the file.
func (f *File) Receiver(id ID) int {
	return slices.IndexFunc(f.Receivers, func(m Member) bool { return m.ID() == id })
}

// CheckUpdate checks f as the next version of a running group: receivers and ranges of memory may
// be added and removed, everything else must stay. The error names the key and tells how to correct
// it.
func (f *File) CheckUpdate(running *File) error {
	for _, step := range []func(*File) error{f.sameKeys, f.samePolicy, f.sameMemory, f.sameSource, f.sameReceivers} {
		if err := step(running); err != nil {
			return err
		}
	}
	return nil
}

func same[T comparable](f *File, key string, is, was T) error {
	if is == was {
		return nil
	}
	line := f.Lines[key]
	if line == 0 {
		line = f.Lines["name"] // the key is absent
	}
	return yamldoc.Errorf(line, "%s is %v and the running group has %v; an update may change only receivers and memory: "+
		"write %v, or remove the group and create it again", key, is, was, was)
}

func (f *File) sameKeys(running *File) error {
	for _, err := range []error{
		same(f, "name", f.Name, running.Name),
		same(f, "ip", f.IP, running.IP),
		same(f, "qpn", f.QPN, running.QPN),
		same(f, "mtu", f.PathMTU, running.PathMTU),
		same(f, "addressing", f.Addressing, running.Addressing),
		same(f, "hosts", f.Hosts, running.Hosts),
		same(f, "hosts-secret", f.HostsSecret, running.HostsSecret),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *File) samePolicy(running *File) error {
	for i := range feedback.Keys {
		k := &feedback.Keys[i]
		if err := same(f, k.Name, keyText(k, f.Policy), keyText(k, running.Policy)); err != nil {
			return err
		}
	}
	return nil
}

// sameMemory refuses what no group can change of its memory. Ranges may come and go. The errors
// must not have an R_Key.
func (f *File) sameMemory(running *File) error {
	line := max(f.Lines["memory"], f.Lines["name"])
	switch {
	case running.Memory == nil && f.Memory != nil:
		return yamldoc.Errorf(line, "the running group has no memory, so copies keep the addresses and keys of the source; remove "+
			"memory, or remove the group and create it again")
	case running.Memory != nil && f.Memory == nil:
		return yamldoc.Errorf(line, "memory is missing; write memory: [] if none is left, or remove the group and create it again")
	case running.Table != f.Table:
		return yamldoc.Errorf(line, "memory is a table in one of the running group and the file, and a list in the other; keep what the "+
			"running group has, or remove the group and create it again")
	}
	type start struct {
		va   uint64
		rkey uint32
	}
	lengths := make(map[start]uint64, len(running.Memory))
	for _, was := range running.Memory {
		lengths[start{was.VA, was.RKey}] = was.Length
	}
	for i, is := range f.Memory {
		if was, ok := lengths[start{is.VA, is.RKey}]; ok && was != is.Length {
			return yamldoc.Errorf(line, "memory %d is %d bytes long and the running group's is %d; write length: %d",
				i+1, is.Length, was, was)
		}
	}
	return nil
}

// HasMemoryOf reports whether the ranges of both files are the same, in whatever order.
func (f *File) HasMemoryOf(other *File) bool {
	if len(f.Memory) != len(other.Memory) {
		return false
	}
	where := indexes(other.Memory)
	for _, v := range f.Memory {
		if _, ok := where[v]; !ok {
			return false
		}
	}
	return true
}

func indexes(memory []mft.VirtualRegion) map[mft.VirtualRegion]int {
	where := make(map[mft.VirtualRegion]int, len(memory))
	for i, v := range memory {
		where[v] = i
	}
	return where
}

// CheckOneChange refuses an update that changes the memory and the receivers: boxes behind this one
// are told of new memory before this box has it, but of receivers that leave only afterwards.
func (f *File) CheckOneChange(running *File) error {
	if f.HasMemoryOf(running) {
		return nil
	}
	same := len(f.Receivers) == len(running.Receivers)
	for i := range f.Receivers {
		same = same && running.Receiver(f.Receivers[i].ID()) >= 0
	}
	if !same {
		return yamldoc.Errorf(max(f.Lines["memory"], f.Lines["name"]), "memory and members both differ from the running group's; "+
			"make two updates, one for the memory and one for the members")
	}
	return nil
}

// Steps returns the files, of which each passes CheckOneChange after the one before, by which a
// running group gets from its own file to f: first ranges leave, then receivers leave and join, and
// then ranges come.
func (f *File) Steps(running *File) (steps []*File) {
	if f.CheckOneChange(running) == nil {
		return []*File{f}
	}
	without, before := running.withRangesOf(f), f.withRangesOf(running)
	if !without.HasMemoryOf(running) {
		steps = append(steps, without)
	}
	if before.HasMemoryOf(f) {
		return append(steps, f)
	}
	return append(steps, before, f)
}

// withRangesOf returns f with only the ranges that the other file has too.
func (f *File) withRangesOf(other *File) *File {
	has, next := indexes(other.Memory), *f
	next.Memory, next.Receivers = []mft.VirtualRegion{}, slices.Clone(f.Receivers)
	for i := range next.Receivers {
		next.Receivers[i].Regions = nil
	}
	for at, v := range f.Memory {
		if _, both := has[v]; !both {
			continue
		}
		next.Memory = append(next.Memory, v)
		for i := range next.Receivers {
			next.Receivers[i].Regions = append(next.Receivers[i].Regions, f.Receivers[i].Regions[at])
		}
	}
	if at := next.Receiver(next.Source.ID()); at >= 0 && next.Source.Role == Both {
		next.Source.Regions = next.Receivers[at].Regions
	}
	return &next
}

func (f *File) sameSource(running *File) error {
	is, was := f.Source, running.Source
	if is.IP == was.IP && is.QPN == was.QPN && is.FirstPSN == was.FirstPSN && is.Role == was.Role {
		return f.samePeer(&is, &was)
	}
	return yamldoc.Errorf(is.Line, "QP %d of %v with PSN %d would be the first source (role %v), but the running "+
		"group's first source is QP %d of %v with PSN %d (role %v); keep it, or remove the group and create it again",
		is.QPN, is.IP, is.FirstPSN, is.Role, was.QPN, was.IP, was.FirstPSN, was.Role)
}

// samePeer refuses another peer for a member's QP: a QP has one for its whole life.
func (f *File) samePeer(is, was *Member) error {
	if is.RemoteIP == was.RemoteIP && is.RemoteQPN == was.RemoteQPN {
		return nil
	}
	return yamldoc.Errorf(is.Line, "the member at %v has remote QPN %d and %s, but in the running group remote QPN %d and %s; "+
		"keep them, or remove the group and create it again", is.IP, is.RemoteQPN, is.remoteIP(), was.RemoteQPN, was.remoteIP())
}

// remoteIP names the key remoteIP in a sentence.
func (m *Member) remoteIP() string {
	if !m.RemoteIP.IsValid() {
		return "no remoteIP"
	}
	return "remoteIP " + m.RemoteIP.String()
}

// keepsRegions reports whether a receiver keeps the ranges that stay where it kept them. ranges are
// those of the running group.
func (f *File) keepsRegions(m, old *Member, ranges map[mft.VirtualRegion]int) bool {
	for i, v := range f.Memory {
		if k, stays := ranges[v]; stays && m.Regions[i] != old.Regions[k] {
			return false
		}
	}
	return true
}

// sameReceivers refuses a changed receiver: the data path's state of a receiver is valid for one QP
// only.
func (f *File) sameReceivers(running *File) error {
	ranges := indexes(running.Memory)
	was := make(map[ID]Member, len(running.Receivers))
	for _, m := range running.Receivers {
		was[m.ID()] = m
	}
	for _, m := range f.Receivers {
		old, stays := was[m.ID()]
		if !stays {
			continue
		}
		if m.QPN != old.QPN || m.FirstPSN != old.FirstPSN || m.SendPSN != old.SendPSN || m.Role != old.Role || m.RelayQPN != old.RelayQPN || m.RelayShares != old.RelayShares || !f.keepsRegions(&m, &old, ranges) {
			return yamldoc.Errorf(m.Line, "the member at %v with remote QPN %d is another QP, or has another psn, "+
				"sendPSN, role or regions, than in the running group; update the group without it, and then with "+
				"it, so that it joins again", m.IP, m.RemoteQPN)
		}
		if err := f.samePeer(&m, &old); err != nil {
			return err
		}
		if f.Policy.Ack != feedback.AckAll && m.Weight() > old.Weight() {
			return yamldoc.Errorf(m.Line, "the member at %v with remote QPN %d has receivers %d and the running group has "+
				"%d; the new ones lack what the old ones have acknowledged, so a quorum cannot count them: write %d or fewer",
				m.IP, m.RemoteQPN, m.Weight(), old.Weight(), old.Weight())
		}
	}
	return nil
}
