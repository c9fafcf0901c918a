package hosts

import (
	"net/netip"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/gather"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/roce"
)

const (
	// The QPNs of groups. 0 and 1 are QPs of management on every port, and the highest one is that
	// of multicast.
	minHostQPN = 2
	maxHostQPN = 1<<24 - 2
	// maxOfHost bounds the running groups of one host, and maxUnconfirmed those of them with a
	// member that has not confirmed that its QP is ready. One host alone cannot use up the box's
	// room for groups.
	maxOfHost      = 256
	maxUnconfirmed = 64
	// keepLeft is how long the members of an ended group can hear that it has ended. They ask about
	// once a second.
	keepLeft = 10 * time.Minute
	// maxLeft bounds the groups that are kept so: hosts may make and leave any number of groups.
	maxLeft = 1024
)

// Group is a group as hosts hear of it.
type Group struct {
	api.Group // with all members, also those that are behind other boxes
	// Secret is what each host shows that joins.
	Secret groupfile.Secret
	// Unconfirmed are the receivers whose programs have not said that their QPs are ready.
	Unconfirmed []groupfile.ID
}

// Known is what is known of each group of the box.
type Known struct {
	Name        string
	File        *groupfile.File // nil: what was stored of it cannot be read
	IsBranch    bool            // another box asks for it
	Unconfirmed []groupfile.ID
}

// Basis is the version of a group from which a change is made.
type Basis any

// desk is what the box knows of hosts, besides their groups.
type desk struct {
	box  string             // the name of this box
	full func(h netip.Addr) // a bound of this host was met

	hall gather.Hall
	qpn  roce.QPN // of the newest group
	// programs are those of the members, by group. What a daemon before knew comes again with the
	// next question of each host.
	programs map[string]map[netip.Addr]*program
	// senders are the hosts that have sent in a group since it was made, or since the daemon began:
	// they may come back with a role that sends.
	senders map[string]map[netip.Addr]bool
	// unconfirmed has since when the box knows that a member has not confirmed.
	unconfirmed map[waiting]time.Time
	// ended keeps groups that ended because of one member; the other members are told on their next
	// question.
	ended map[string]*endedGroup
}

func newDesk(box string, firstQPN roce.QPN, full func(netip.Addr)) desk {
	return desk{
		box: box, full: full, hall: gather.Hall{Full: full}, qpn: firstQPN, programs: map[string]map[netip.Addr]*program{},
		senders: map[string]map[netip.Addr]bool{}, unconfirmed: map[waiting]time.Time{}, ended: map[string]*endedGroup{},
	}
}

// task is one question of a host, or the end of one membership.
type task struct {
	name string
	ip   netip.Addr // of the host
	then next
	says []note // what is to be logged

	// Of a host that joins:
	host    *gather.Host
	groupIP netip.Addr // of the groups that it may make
	seen    string     // version of the answer that it has; "": it joins anew

	asking *program // that counts this question
}

// note is a line of the log.
type note struct {
	level   zapcore.Level
	message string
	fields  []zap.Field
}

func (t *task) say(level zapcore.Level, message string, fields ...zap.Field) {
	t.says = append(t.says, note{level, message, append([]zap.Field{zap.String("group", t.name)}, fields...)})
}

func (t *task) sayHost(level zapcore.Level, message string, fields ...zap.Field) {
	t.say(level, message, append([]zap.Field{zap.Stringer("host", t.ip)}, fields...)...)
}

// event is the outcome of what a task did last.
type event struct {
	err error
	// isOver: the time to wait is over, or the host has hung up; hungUp: the latter.
	isOver, hungUp bool

	group *Group // of look, create, change, confirm and follow
	// Of read:
	file *groupfile.File
	from Basis
	// known are the groups of the box, for a read of a host that joins, and for enter.
	known []Known
	// isThere: there is a group of the task's name; of enter.
	isThere bool
	// Of choose: the member with which the group begins, the QPNs that groups have at the IP, and a
	// random R_Key.
	first *gather.Host
	taken map[roce.QPN]bool
	rkey  uint32
}

// do is what a task does.
type do uint8

const (
	begin   do = iota // nothing: the task begins
	answer            // the task has ended, with group or err
	enter             // look at the hall, at once: nobody comes to it or leaves it meanwhile
	look              // take the lock of the name, and look at the group
	read              // read the group's file, to change it
	change            // change the group to text, if it is still from
	confirm           // confirm the member with text
	remove            // remove the group, if it is still from
	made              // wait until over, with the lock; an error if the time to work ends before
	choose            // find out with which member of the party a group begins, and what QPNs are free
	create            // create the group of text
	wait              // wait until over, or until the time to wait ends
	other             // wait until something happens to the group, but not for long
	follow            // wait until the group is another one than at the last look
	outwait           // wait until the time to wait ends
)

// keepsLock reports whether a task that does this holds the lock of its group's name on.
func (d do) keepsLock() bool {
	switch d {
	case look, read, change, confirm, remove, made:
		return true
	}
	return false
}

// waits reports whether a task that does this waits for others, and does nothing besides.
func (d do) waits() bool {
	switch d {
	case wait, other, follow, outwait:
		return true
	}
	return false
}

// act is what a task does next. then takes the outcome.
type act struct {
	do    do
	group api.HostGroup // of answer
	err   error         // of answer
	text  []byte
	from  Basis
	over  <-chan struct{}
	party *gather.Party // of choose
	then  next
}

// next decides what a task does after an event.
type next func(now time.Time, t *task, e event) act

// step takes the outcome of what a task did, and returns what it does next.
func (d *desk) step(now time.Time, t *task, e event) act {
	a := t.then(now, t, e)
	t.then = a.then
	return a
}

// end answers with an error, or with nothing.
func end(err error) act { return act{do: answer, err: err} }
