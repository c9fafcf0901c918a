package api

import "time"

// EventKind says what happened.
type EventKind string

const (
	GroupCreated EventKind = "group-created"
	GroupUpdated EventKind = "group-updated"
	GroupRemoved EventKind = "group-removed"
	// GroupDegraded: packets wait, and the group hardly gets on, or it could not be set up at all
	// its boxes. A program with another way to its receivers takes that way now.
	GroupDegraded EventKind = "degraded"
	GroupRestored EventKind = "restored" // the group is no longer degraded

	MemberJoined      EventKind = "member-joined"      // takes part from now on
	MemberLeft        EventKind = "member-left"        // an update left it out, or it has disconnected
	MemberConfirmed   EventKind = "member-confirmed"   // its program has said that its QP is ready
	MemberStalled     EventKind = "member-stalled"     // acknowledges nothing while packets wait for it
	MemberReturned    EventKind = "member-returned"    // had stalled, and acknowledges again
	MemberRepairing   EventKind = "member-repairing"   // keeps losing packets, or is slow
	MemberRefused     EventKind = "member-refused"     // its QP ended with a fatal NAK
	MemberBehind      EventKind = "member-behind"      // lacks what the source no longer has
	MemberEvicted     EventKind = "member-evicted"     // the group no longer waits for it
	MemberUnreachable EventKind = "member-unreachable" // no way leads to it
	MemberReachable   EventKind = "member-reachable"
	RouteChanged      EventKind = "route-changed"   // the member, or some of the group's, is reached by another way
	SourceSwitched    EventKind = "source-switched" // the member is the source from now on

	// ConnectionRefused: the program of Member wanted to connect at the group IP of a service
	// (rocast cm, rocast perftest) and was refused because of others, whom the cause names.
	ConnectionRefused  EventKind = "connection-refused"
	ConnectionWaits    EventKind = "connection-waits"    // the program of Member waits for the end of another run of perftest
	ConnectionSilent   EventKind = "connection-silent"   // the source of a connection, Member, does not answer
	ConnectionReturned EventKind = "connection-returned" // it answers again

	// AddressTaken: another host uses Group's IP. What hosts send to the group may go there.
	AddressTaken EventKind = "address-taken"
)

// Events of a receiver's edge, or of the box that is one.
const (
	EdgeLost   EventKind = "edge-lost"   // shared copies do not reach the receiver
	EdgeWorks  EventKind = "edge-works"  // they reach it again
	EdgeFails  EventKind = "edge-fails"  // the edge at its host, or the box that it is, cannot load a mapping
	EdgeSilent EventKind = "edge-silent" // the edge at its host has stopped asking
	EdgeAsks   EventKind = "edge-asks"   // it asks again
)

// Events of the box.
const (
	StoreAway EventKind = "etcd-away" // does not answer: changes are refused, and groups may be missing here
	StoreBack EventKind = "etcd-back"

	// FramesRefused: frames are refused of which no group knows the sender, or for which the box is
	// not set up.
	FramesRefused EventKind = "frames-refused"

	PortWentDown EventKind = "port-down" // no link, or no interface
	PortCameUp   EventKind = "port-up"
	// PortFellBack: it was opened again in generic mode, because it gave rocast no frames.
	PortFellBack EventKind = "port-generic"

	ConfigReloaded EventKind = "config-reloaded" // the daemon has taken over what changed in its config
	ConfigRefused  EventKind = "config-refused"  // it has not, and runs as before

	// NeighbourDown: a box behind this one does not answer, or refuses, for Group.
	NeighbourDown EventKind = "neighbour-down"
	NeighbourUp   EventKind = "neighbour-up"
)

// EventMeaning is a kind of events and its meaning, a sentence.
type EventMeaning struct {
	Kind    EventKind `json:"kind"`
	Meaning string    `json:"meaning"`
}

// EventMeanings returns all kinds of events.
func EventMeanings() []EventMeaning {
	return []EventMeaning{
		{GroupCreated, "A group was created, or a neighbour has asked this box for its part of one."},
		{GroupUpdated, "Receivers are about to join or leave a group, or its memory has changed."},
		{GroupRemoved, "A group was removed."},
		{GroupDegraded, "A group hardly gets on, or lacks a box; goesOn: only a member is in trouble."},
		{GroupRestored, "A group is no longer degraded."},
		{AddressTaken, "Another host uses a group's IP; the cause names its MAC."},
		{MemberJoined, "A receiver takes part from the source's packet psn on."},
		{MemberLeft, "An update has left a receiver out, or it has disconnected by RDMA-CM."},
		{MemberConfirmed, "A receiver's program has said that its QP is ready."},
		{MemberStalled, "A receiver acknowledges nothing, and others are further."},
		{MemberReturned, "A receiver that had stalled acknowledges again."},
		{MemberRepairing, "A receiver gets its data by repair alone: it loses packets, or is slow."},
		{EdgeLost, "Shared copies do not reach a receiver, which gets copies of its own."},
		{EdgeWorks, "Shared copies reach a receiver again."},
		{EdgeFails, "An edge or a box below cannot map a group's copies; the cause says why."},
		{EdgeSilent, "The edge at a receiver's host has stopped asking; what it maps is still used."},
		{EdgeAsks, "The edge at a receiver's host asks again."},
		{MemberRefused, "A receiver has answered packet psn with a fatal NAK, which ends its QP."},
		{MemberBehind, "A receiver lacks packet psn, which the source no longer has, and gets no more."},
		{MemberEvicted, "A receiver is no longer waited for; it lacks packet psn and what follows."},
		{MemberUnreachable, "No way leads to a member, or its host does not say its MAC when the box asks."},
		{MemberReachable, "A way leads to a member again."},
		{RouteChanged, "A member, or some of a group's, is reached by another way."},
		{SourceSwitched, "A member is the source from its packet psn on."},
		{ConnectionRefused, "A program could not connect by rocast cm or perftest because of others."},
		{ConnectionWaits, "A client of rocast perftest waits for the end of another one's run."},
		{ConnectionSilent, "The source of a connection by rocast cm or perftest does not answer."},
		{ConnectionReturned, "Such a source answers again."},
		{StoreAway, "etcd does not answer; changes are refused, and groups may be missing."},
		{StoreBack, "etcd answers again."},
		{FramesRefused, "Frames are refused that no member has sent, or that the box is not set up for."},
		{PortWentDown, "A port has no link, or its interface has gone."},
		{PortCameUp, "A port works again."},
		{PortFellBack, "A port gave rocast no frames in native mode, and works in generic mode."},
		{ConfigReloaded, "The daemon has taken over what changed in its config."},
		{ConfigRefused, "The daemon has not taken a changed config over, and runs as before."},
		{NeighbourDown, "A box behind this one does not answer for a group, or refuses its part."},
		{NeighbourUp, "The part of a box behind this one is set up again."},
	}
}

// Event is something that happened. Which of the names are there depends on Kind.
type Event struct {
	Seq       uint64    `json:"seq"` // counts the events of one run of the daemon, from 1
	Time      time.Time `json:"time"`
	Kind      EventKind `json:"kind"`
	Group     string    `json:"group,omitempty"`
	Member    string    `json:"member,omitempty"` // an IP
	RemoteQPN uint32    `json:"remoteQPN,omitempty"`
	Port      string    `json:"port,omitempty"`
	Neighbour string    `json:"neighbour,omitempty"`
	// PSN is the packet of the source that Kind is about: the first one that Member got
	// (member-joined, source-switched: that it sent), refused, or lacks (member-evicted,
	// member-behind).
	PSN     *uint32  `json:"psn,omitempty"`
	Cause   string   `json:"cause,omitempty"`  // a sentence
	GoesOn  bool     `json:"goesOn,omitempty"` // with GroupDegraded: see GroupSummary
	Goodput *Goodput `json:"goodput,omitempty"`
}

// Cursor is a position in the events of a daemon. The zero Cursor is before all events that are
// kept.
type Cursor struct {
	Run string `json:"run"` // differs each time the daemon starts, when Seq begins again
	Seq uint64 `json:"seq"` // the last event that was read
}

// Events is the answer to a question for the events after a Place.
type Events struct {
	Events []Event `json:"events"`
	Cursor Cursor  `json:"place"` // for the next question
	// Missed says that there were events in between that are no longer kept, or that the daemon has
	// started again: look at the groups themselves.
	Missed bool `json:"missed,omitempty"`
}

// MaxEventWait bounds how long a question for events may wait for one.
const MaxEventWait = 20 * time.Second
