// Package yamldoc reads YAML that people write. For a mistake it returns one sentence that names
// the line, the value and the correction.
//
// The package does not decode by reflection: a caller lists the known keys with a function for
// each. Unknown, repeated and missing keys and values out of range are therefore refused with their
// line. Anchors, aliases and a second document are refused too. An error never repeats a value that
// was read as a number, because the number may be a secret (an R_Key).
//
// Read first: value.go.
package yamldoc
