// Package openapi has the description of the daemon's API for programs in other languages, in the
// form of OpenAPI 3.0. Its test makes the description from the types of package api, their comments
// and the list of paths in that package's comment: go test ./ctl/openapi -update.
package openapi

import _ "embed"

// Document is the description, in YAML. The daemon serves it.
//
//go:embed openapi.yaml
var Document []byte
