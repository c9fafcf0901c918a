package groupfile

import (
	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
)

// parser holds the file and the positions of the values that are checked after the whole file has
// been read.
type parser struct {
	File
	memory  []yamldoc.Value // parallel to File.Memory
	members []member
}

// Parse reads a group file. Its error is a [yamldoc.Error].
func Parse(text []byte) (*File, error) {
	f, err := parse(text, yamldoc.Parse, func(yamldoc.Value, *parser) {})
	if err == nil {
		err = f.checkEffects()
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// ParseStored is Parse for a text that was accepted before, perhaps by an older release.
func ParseStored(text []byte) (*File, error) {
	return parse(text, yamldoc.ParseStored, func(yamldoc.Value, *parser) {})
}

// parse reads a group file. add may add members before the file is checked.
func parse(text []byte, read func([]byte, string) (yamldoc.Value, error), add func(yamldoc.Value, *parser)) (*File, error) {
	document, err := read(text, "the group file")
	if err != nil {
		return nil, err
	}
	p := parser{File: File{
		Lines: map[string]int{}, DegradedBelow: DegradedBelow, DegradedAfter: DegradedAfter,
		Policy: feedback.Policy{Repair: feedback.RepairLocal},
	}}
	if err := p.read(document); err != nil {
		return nil, err
	}
	add(document, &p)
	if err := p.check(); err != nil {
		return nil, err
	}
	file := p.File // a copy, because the parser would keep the whole document in memory
	return &file, nil
}

func (p *parser) read(document yamldoc.Value) error {
	fields := []yamldoc.Field{
		{Key: "name", Set: yamldoc.Into(&p.Name, name), Needed: "name: WORD, what the group is called"},
		{Key: "ip", Set: yamldoc.Into(&p.IP, Unicast), Needed: "ip: ADDRESS, what members use as peer IP"},
		{Key: "qpn", Set: yamldoc.Into(&p.QPN, remoteQPN), Needed: "qpn: N, what the source uses as remote QPN"},
		{Key: "mtu", Set: yamldoc.Into(&p.PathMTU, pathMTU), Needed: "mtu: N, the path MTU the members' QPs were " +
			"given"},
		{Key: "addressing", Set: yamldoc.Into(&p.Addressing, choice(mft.ParseAddressing))},
		{Key: "engine", Set: yamldoc.Into(&p.Engine, choice(mft.ParseEngine))},
		{Key: "copies", Set: yamldoc.Into(&p.Copies, choice(parseCopies))},
		{Key: "degraded-below", Set: yamldoc.Into(&p.DegradedBelow, percent)},
		{Key: "degraded-after", Set: yamldoc.Into(&p.DegradedAfter, degradedAfter)},
		{Key: "hosts", Set: yamldoc.Into(&p.Hosts, readHosts)},
		{Key: "hosts-secret", Set: yamldoc.Into(&p.HostsSecret, readSecret)},
		{Key: "memory", Set: p.readMemory},
		{Key: "members", Set: p.readMembers, Needed: "members: and a list with one source and its receivers"},
	}
	return document.Fields(append(noteLines(p.Lines, fields), PolicyFields(&p.Policy, p.Lines)...)...)
}

// noteLines makes each field store its line in lines when it is read.
func noteLines(lines map[string]int, fields []yamldoc.Field) []yamldoc.Field {
	for i, f := range fields {
		fields[i].Set = func(v yamldoc.Value) error {
			lines[f.Key] = v.Line()
			return f.Set(v)
		}
	}
	return fields
}
