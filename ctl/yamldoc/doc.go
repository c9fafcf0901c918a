// Package yamldoc reads YAML that people write, and answers a mistake with one sentence that names the line, the thing
// and the mend.
//
// It decodes nothing by reflection: a caller lists the keys it knows with a function for each, so an unknown, repeated
// or missing key and a value out of range are all refused where they stand. Anchors, aliases and a second document are
// refused too. An error never repeats a value that was read as a number: it may be a secret (an R_Key).
//
// Read first: value.go.
package yamldoc
