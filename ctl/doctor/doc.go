// Package doctor says what readings of a box mean: a verdict for each check, what was seen, what
// should be seen, and where a person goes on.
//
// It is a function of [Readings]: what the daemon's API says, what ethtool says of each port, and
// both once more some seconds later. It decides nothing that the daemon has decided already. In
// which state a port or a group is, and whose trouble refused frames are, it takes from
// [api.Status], [api.Ports] and [api.Traffic]. So a check never contradicts rocast status.
//
// Begin with [Checks], which lists all checks.
package doctor
