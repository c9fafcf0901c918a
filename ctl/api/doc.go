// Package api defines the daemon's HTTP+JSON interface for both sides: paths, request and answer
// types. The client for programs is package client.
//
//	GET    /v1/groups          Groups
//	POST   /v1/groups          a group file (YAML) in, Group out (201)
//	GET    /v1/groups/{name}   Group
//	PUT    /v1/groups/{name}   a group file in, Group out: changes the receivers of a running group
//	DELETE /v1/groups/{name}   Removed
//	POST   /v1/groups/{name}/ready  Confirmation in, Group out: a member's QP is ready
//	GET    /v1/groups/{name}/regions  Regions; ?from=N&count=N are the first one, and how many at most
//	POST   /v1/groups/{name}/regions  RegionChange in, Group out: memory comes to a running group, or leaves it
//	GET    /v1/trees/{name}    Tree: the group's parts on this box and on those behind it
//	GET    /v1/perftest        Perftests
//	POST   /v1/perftest        PerftestRequest in, Perftest out (201)
//	DELETE /v1/perftest/{groupIP}  Removed
//	GET    /v1/cm              CMs
//	POST   /v1/cm              CMRequest in, CM out (201)
//	DELETE /v1/cm/{groupIP}    Removed
//	GET    /v1/status          Status: whether the box works, and what does not
//	POST   /v1/reload          Reloaded: what has changed in the config file is taken over, or nothing is
//	GET    /v1/ports           Ports
//	GET    /v1/stats           Stats
//	GET    /v1/traffic         Traffic: what the groups carry
//	GET    /v1/traffic/{name}  Traffic of one group, and of each of its members
//	GET    /v1/events          Events after ?run=R&seq=N, with ?group=NAME those of a group; with ?wait=SECONDS (at
//	                           most 20) the answer comes with the next event
//	GET    /v1/log             Log
//	PUT    /v1/log             Log in, Log out: changes the level
//	GET    /v1/capture         a CaptureLine on each line, as things happen;
//	                           ?group=NAME&kind=data,drop&sample=N&snap=N as in CaptureQuery
//	POST   /v1/trace           TraceRequest in, Trace out: what would happen with a frame; nothing changes
//	GET    /v1/features        Features
//	GET    /v1/version         Version
//	GET    /metrics            Prometheus text; also on the listener of metrics: in the config
//	GET    /openapi.yaml       a description of all of this for programs in other languages (OpenAPI 3.0)
//
// Other boxes reach a box over TCP with mutual TLS, and only by these paths:
//
//	GET    /v1/branches/{name}  Tree
//	PUT    /v1/branches/{name}  Branch in, BranchAnswer out: register, renew or change a branch
//	POST   /v1/branches/{name}  Told; the asking box carries a part of the group for the asked one
//	DELETE /v1/branches/{name}  Removed; ?version=N is the version of the request
//
// Hosts reach a box over plain TCP (hosts: in the config), only by these paths, and each of them
// speaks only for the IP from which it comes:
//
//	POST   /v1/hosts/{name}  HostRequest in, HostGroup out: join a group, or ask how it is; with
//	                         ?wait=SECONDS&seen=VERSION the answer waits until it has another version
//	DELETE /v1/hosts/{name}  Removed: leave the group; with ?whole=1 the group ends, and its members
//	                         may make it anew; with ?whole=1&tell=1 they hear that it has ended
//	POST   /v1/edge          EdgeQuestion in, EdgeAnswer out: the mappings that the edge of the host is to have
//
// Every failure is an [Error] in {"error": ...}. A key that a group file also has keeps the name
// that it has there. VAs and R_Keys are strings ("0x7f0000000000"), because JSON readers lose the
// low bits of large numbers. An R_Key is absent if the caller may not see it.
//
// The package imports no other package of rocast and holds no state, so package client can have its
// types in its own interface.
package api
