package groupfile

import (
	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
)

// parser holds, beside the file, where the things stand that are checked once all of it is read.
type parser struct {
	File
	memory      []yamldoc.Value // parallel to File.Memory
	members     []member
	membersLine int
	ackLine     int
}

// Parse reads a group file. Its error is a [yamldoc.Error].
func Parse(text []byte) (*File, error) {
	document, err := yamldoc.Parse(text, "the group file")
	if err != nil {
		return nil, err
	}
	var p parser
	if err := p.read(document); err != nil {
		return nil, err
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	return &p.File, nil
}

func (p *parser) read(document yamldoc.Value) error {
	return document.Fields(
		yamldoc.Field{Key: "name", Set: at(&p.Lines.Name, &p.Name, name), Needed: "name: WORD, what the group is called"},
		yamldoc.Field{Key: "ip", Set: at(&p.Lines.IP, &p.IP, unicast), Needed: "ip: ADDRESS, what members use as peer IP"},
		yamldoc.Field{Key: "qpn", Set: at(&p.Lines.QPN, &p.QPN, remoteQPN), Needed: "qpn: N, what the source uses as remote QPN"},
		yamldoc.Field{Key: "mtu", Set: at(&p.Lines.MTU, &p.PathMTU, pathMTU), Needed: "mtu: N, the path MTU the members' QPs were given"},
		yamldoc.Field{Key: "addressing", Set: yamldoc.Into(&p.Addressing, choice(mft.ParseAddressing))},
		yamldoc.Field{Key: "ack", Set: at(&p.ackLine, &p.Policy.Ack, choice(feedback.ParseAck))},
		yamldoc.Field{Key: "nak", Set: yamldoc.Into(&p.Policy.Nak, choice(feedback.ParseNak))},
		yamldoc.Field{Key: "on-fatal", Set: yamldoc.Into(&p.Policy.OnFatal, choice(feedback.ParseFatal))},
		yamldoc.Field{Key: "memory", Set: p.readMemory},
		yamldoc.Field{Key: "members", Set: p.readMembers, Needed: "members: and a list with one source and its receivers"},
		yamldoc.Field{Key: "forward", Set: p.readForward},
	)
}

// at is [yamldoc.Into] that keeps the line too.
func at[T any](line *int, dst *T, parse func(yamldoc.Value) (T, error)) func(yamldoc.Value) error {
	return func(v yamldoc.Value) error {
		*line = v.Line()
		return yamldoc.Into(dst, parse)(v)
	}
}

func (p *parser) readForward(v yamldoc.Value) error {
	return v.Each("forward", func(item yamldoc.Value) error {
		f := Forward{Line: item.Line()}
		if err := item.Fields(
			yamldoc.Field{Key: "port", Set: yamldoc.Into(&f.Port, yamldoc.Value.Text), Needed: "port: NAME, the interface towards the next switch"},
			yamldoc.Field{Key: "via", Set: yamldoc.Into(&f.Via, unicast), Needed: "via: ADDRESS, the next switch's on that link"},
		); err != nil {
			return err
		}
		for _, other := range p.Forward {
			if other.Port == f.Port {
				return item.Errorf("goes through port %s like the one on line %d, so their feedback cannot be told apart; keep one per port", f.Port, other.Line)
			}
		}
		p.Forward = append(p.Forward, f)
		return nil
	})
}
