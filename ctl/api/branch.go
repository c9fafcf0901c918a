package api

// Registration is the version of the messages between boxes. A box refuses another version.
const Registration = 2

// Branch asks a box to carry a group to the members behind it. The asking box is the upper one: its
// end of the link is the source of the asked box's group.
//
// The request may be repeated: with the version that the branch has it only renews the lease, with
// a higher one it changes the members, and with a lower one it is refused. DELETE has a version
// too.
type Branch struct {
	Registration int `json:"registration"`
	// Root is the box where the group was created. Epoch grows with each change that Root makes: of
	// two upper boxes that ask for the same group, the one with the later epoch counts.
	Root  string `json:"root"`
	Epoch uint64 `json:"epoch"`
	// Claim says when Root has claimed the group, where boxes share their groups; 0: they do not.
	// Of two roots, the one with the later claim counts.
	Claim int64 `json:"claim,omitempty"`
	// Visited names the boxes on the way, the root first and the asking box last.
	Visited []string `json:"visited"`
	Version uint64   `json:"version"`
	Lease   int      `json:"lease"`  // seconds after which the branch ends unless it is renewed or carries data
	Within  int      `json:"within"` // milliseconds for which the asking box waits for the answer
	// Begun says that data may have been sent on the link already. A box that does not know the
	// branch then treats it as after a restart.
	Begun bool    `json:"begun"`
	Link  LinkEnd `json:"link"`
	// First is the QPN of the asking box's first end of this link, which the link keeps when Link
	// becomes another one. A box that has the branch by another link has that of an earlier group.
	// Absent: an older release asks. Then another queue pair is another link.
	First uint32 `json:"first,omitempty"`
	// Switched says that the source of the group has switched. A box that does not know the branch
	// then refuses it: only the box that had it knows what its receivers' QPs expect.
	Switched bool `json:"switched,omitempty"`
	// OfService: the group is one of rocast cm or perftest, so nobody can change it by a group
	// file. Absent: an older release may ask.
	OfService bool `json:"ofService,omitempty"`
	// Problem is why the asking box, or one above, does not carry the group at present; absent: it
	// does.
	Problem string `json:"problem,omitempty"`
	// Hear asks for what has happened to the receivers until now, at the boxes behind the asked one
	// too: one of them may move away. An older release answers with what it knows.
	Hear bool `json:"hear,omitempty"`
	// Yours is the end that the asked box gave in its last answer; absent: it has given none.
	Yours *LinkEnd `json:"yours,omitempty"`
	// Later are the members that joined when the group was already running, and those that come
	// from another box. At a box that does not know the branch, those without a Since no longer
	// take part, unless Joins has them; at one that knows it, they join.
	Later []Later `json:"later,omitempty"`
	// Joins are members behind the asked box for which no request has asked before: they join, also
	// at a box that does not know the branch. An older release takes them there for members that no
	// longer take part.
	Joins []MemberID `json:"joins,omitempty"`
	// Confirmed are members behind the asked box whose programs have said at a box above that their
	// QPs are ready.
	Confirmed []MemberID `json:"confirmed,omitempty"`
	// File is a group file without source: the members behind the asked box.
	File string `json:"file"`
}

// MemberID identifies a receiver of a group.
type MemberID struct {
	IP        string `json:"ip"`
	RemoteQPN uint32 `json:"remoteQPN"`
}

// Later says since when a member of a branch takes part, if not since the link's first packet.
type Later struct {
	MemberID
	// Since is the PSN on the link with which the member's QP expects the psn of the file; absent:
	// the box that says this does not know it.
	Since *uint32 `json:"since,omitempty"`
	Out   bool    `json:"out,omitempty"` // it no longer takes part
}

// LinkEnd is one end of a link between two boxes: an address and a QPN of a box, and the first PSN
// that this end sends.
type LinkEnd struct {
	IP  string `json:"ip"`
	QPN uint32 `json:"qpn"`
	PSN uint32 `json:"psn"`
}

// Told answers a box that has told of a change of its branch.
type Told struct {
	Name string `json:"name"`
}

// BranchAnswer says that a branch is set up, together with those behind it.
type BranchAnswer struct {
	Version uint64   `json:"version"`
	Link    LinkEnd  `json:"link"`              // the answering box's end
	Waiting []Absent `json:"waiting,omitempty"` // what is missing in the subtree
	Later   []Later  `json:"later,omitempty"`   // of the subtree, as far as the answering box knows
}

// Absent is something in the tree that is missing at present.
type Absent struct {
	Box    string `json:"box"`
	Member string `json:"member,omitempty"` // absent: the box itself is missing
	Reason string `json:"reason"`
}

// Upper says for which box a group is a branch.
type Upper struct {
	Box     string   `json:"box"`
	Root    string   `json:"root"`
	Visited []string `json:"visited"`
}

// Link is a link to a neighbour with the members behind it.
type Link struct {
	Box     string   `json:"box"`
	State   string   `json:"state"`
	Reason  string   `json:"reason,omitempty"`
	Local   LinkEnd  `json:"local"`
	Remote  LinkEnd  `json:"remote"`
	Members []string `json:"members"`           // the IPs of the members behind it
	Waiting []Absent `json:"waiting,omitempty"` // what is missing behind it
}

// Tree is a box's part of a group's tree, and those of the boxes behind it.
type Tree struct {
	Box   string `json:"box"`
	Group Group  `json:"group"` // without R_Keys
	Below []Tree `json:"below,omitempty"`
	// Reason says why the box could not be asked; its other fields are then empty.
	Reason string `json:"reason,omitempty"`
}
