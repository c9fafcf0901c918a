// Package view is what the API shows of groups and of the box, as pure functions.
//
// Each takes a version of a group (ctl/groups), what the data path says of it, and the time, and
// returns what is shown. So a view asks nobody, takes no lock and reads no clock, and every view of
// a group says the same: [Summary] alone decides in which state a group is. [TroubleOf] says why a
// member does not get on, in a word and in a sentence.
package view
