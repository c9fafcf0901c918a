// Package image makes what a lab guest boots, a kernel and an initramfs, from what test/softroce/setup.sh put into the
// cache and from this repository: the agent (../agent) and the verbs program (../verbs).
//
// What it never does: fetch anything, or change this machine outside the cache directory. Where the cache lacks
// something the error says so and wraps [ErrNotPrepared], so that a test can skip.
//
// Start reading at Build. contents.go says what is in a guest.
package image
