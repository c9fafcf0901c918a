// Package image makes what a lab guest boots: a kernel and an initramfs. They come from the cache
// that test/softroce/setup.sh has filled, and from this repository: the agent (../agent) and the
// verbs program (../verbs).
//
// The package never fetches anything, and changes nothing on this machine outside the cache
// directory. If the cache lacks something, the error says so and wraps [ErrNotPrepared], so that a
// test can skip.
//
// Start reading at Build. contents.go lists what is in a guest.
package image
