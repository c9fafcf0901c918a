// Package store stores the data that the daemon needs after a restart, in its state directory.
//
//	lock                 locked by the running daemon; contains its PID
//	groups/NAME.yaml     a desired group, as the user wrote it (R_Keys included, hence mode 0600 below 0700)
//	groups/NAME.state    the state of its members, empty if there is nothing to say (package ctl)
//	groups/NAME.tree     its links to other boxes, if it has any (package ctl)
//	groups/NAME.regions  the changes of its memory, if that is a table (package ctl/regions)
//	idle                 written last at a clean stop, a group per line: those that never carried data,
//	                     and with ! in front those whose NAME.state could not be stored at the stop
//	legs                 the first QPN of shared copies that was not used yet (package ctl/edges)
//	addresses            the IPs the daemon added to interfaces: package ctl/address
//
// Every file but NAME.regions is written under a temporary name, synced and renamed, so a crash
// leaves either the old content or the new content. Its first line has a checksum of what follows;
// a file of an older release lacks that line, and an empty one is damaged. To NAME.regions changes
// are appended: a crash may leave a part of the last one, which is not read. A group with memory:
// table has that file from the start, so one that is missing is not taken for an empty table.
// Every group has a NAME.state from the start, and a group that spans boxes a NAME.tree. The first
// line of NAME.yaml says which of them there are, unless an older release wrote it. A file that is
// damaged or missing fails its group, and a damaged one is left as it is.
//
// The file idle answers one question at the next start: may a group begin with its first PSN, or
// may its QPs have advanced? The daemon removes the file before it publishes a group. If the file
// is missing, the daemon or the box crashed, and nothing is known about any group. If the file
// exists but does not list a group, that group had carried data when the daemon stopped, and its
// QPs may still exist. In both cases the group is restored with mft.Group.Restored set. A group
// with ! in front is restored as after a crash.
//
// The package does not interpret group files or states.
package store
