// Package api is the daemon's HTTP+JSON interface as both sides see it: paths, what goes over them, and a client.
//
//	GET    /v1/groups          Groups
//	POST   /v1/groups          a group file (YAML) in, Group out (201)
//	GET    /v1/groups/{name}   Group
//	PUT    /v1/groups/{name}   a group file in, Group out: its receivers come and go
//	DELETE /v1/groups/{name}   Removed
//	GET    /v1/perftest        Perftests
//	POST   /v1/perftest        PerftestRequest in, Perftest out (201)
//	DELETE /v1/perftest/{ip}   Removed
//	GET    /v1/ports           Ports
//	GET    /v1/stats           Stats
//	GET    /v1/features        Features
//	GET    /v1/version         Version
//	GET    /metrics            Prometheus text
//
// Anything but success is an [Error] in {"error": ...}. Keys that a group file has too are called the same. VAs and R_Keys
// are strings ("0x7f0000000000"), because JSON readers lose the low bits of large numbers; an R_Key is left out for a
// reader who may not see it.
//
// The package imports nothing of ours and holds no state: a program can use it to talk to the daemon without the rest.
package api
