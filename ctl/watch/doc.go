// Package watch looks at groups that run, and says what it sees.
//
// [Watch] hears the data path's notes about members (notes.go), and lets another member become the
// source once that is stored (turn.go). It hears from programs that their QPs are ready
// (confirm.go). Four times a second it looks at the progress of each group (progress.go): whether
// it gets on as it did, who holds it up (trouble.go), whose frames are refused (senders.go),
// whose MAC may have changed (silence.go), and which shared copies arrive (shares.go). What is
// refused beside the groups is in strays.go.
//
// It writes what it finds into the groups (ctl/groups), and tells events and log lines. It makes,
// changes and ends no group.
package watch
