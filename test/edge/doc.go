// Package edge tests rocast-edge as hosts run it: at the interfaces of network namespaces, behind a
// bridge that snoops on memberships, beside soft NICs that see only what a NIC would take. A box of
// the test's own answers its questions and sends shared copies.
package edge
