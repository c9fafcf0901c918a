// Package store keeps what the daemon must know again after it ends: its state directory.
//
//	lock               held by the living daemon, with its PID
//	groups/NAME.yaml   a desired group, as its user wrote it (R_Keys included, hence mode 0600 below 0700)
//	groups/NAME.state  what became of its members since, if anything (package ctl)
//	idle               written last at a clean stop: the groups that never carried data, one per line
//	addresses          the IPs the daemon added to interfaces: package ctl/address
//
// Every file is written aside, synced and renamed, so a crash leaves the old content or the new.
//
// The file idle answers one question at the next start: may a group begin with its first PSN, or may its QPs have moved on
// meanwhile? The daemon removes the file before it publishes a group. So when it is missing the daemon crashed, or the box
// did, and nothing is known of any group; and a group it does not list had carried data when the daemon stopped, and
// its QPs may have outlived the pause. Both come back with mft.Group.Restored set.
//
// The package does not know what a group file or a state says.
package store
