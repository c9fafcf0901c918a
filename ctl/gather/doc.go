// Package gather assembles groups from what hosts say about themselves: each host knows its own
// queue pair and how many hosts the group waits for. When all have come there is a group file.
//
// A [Hall] is a step function: it reads no clock and waits for nothing. Package hosts decides what
// each host hears, and has the groups created.
//
// # Groups that hosts make
//
// A group file knows all members; a program on a host knows only itself. Each host says its own
// queue pair, its regions and how many hosts the group waits for (POST /v1/hosts/NAME). When all
// have come there is a group file, and control creates the group from it. A host that comes
// later is an update of the file, one that is ready a confirmation, one that leaves an update
// without it. All that is known of a group is in its file, so the hosts are its members after a
// restart too.
//
//   - A host asks the same question again and again; the answer waits until it differs from the
//     one before. While the group waits it says who has come, later whether the group is clear to
//     send. A host whose connection ends meanwhile is not waited with.
//   - All these groups have one group IP. A QPN is not used again soon, because packets of the
//     group before may be on their way. Regions begin at VA 0, each under an R_Key of its own.
//   - Hosts behind other boxes ask the box of a sender, which is the root: a host cannot know the
//     root of a group that does not exist yet. That a host is ready crosses the tree with the
//     renewals of leases.
//   - A member that ends the group for all asks the box (whole=1 and tell=1), and the others hear
//     it as the answer to their question. Without tell they hear nothing: so a source takes back
//     a group to which all return after a fallback.
//   - The group's queue pair, and one to each member when the group does not work, are the
//     library's (host/single.c). A receiver ends its queue pair of the group before it says how
//     many messages it has, so that number is final. All return together with new queue pairs,
//     because a packet of the old group could arrive behind what came by a single connection.
package gather
