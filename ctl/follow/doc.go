// Package follow lets groups follow the network of the box.
//
// [Network] hears from the kernel of links, next hops and addresses. It opens and closes ports, and
// plans the groups again that have a member there (network.go); other groups are not touched. Ports
// that the config changes come and go here, too (change.go). What happens to ports and addresses is
// told (events.go).
//
// It does not know why a group has a member, nor what the data path sees of it.
package follow
