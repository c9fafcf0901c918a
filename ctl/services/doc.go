// Package services serves programs that know nothing of groups at group IPs: perftest
// (ctl/perftest) and RDMA-CM (ctl/cm). It reads what is asked for, keeps up what the config lists,
// adds the group IPs to the box, and has the groups of runs and connections made.
//
// The two services know only the interfaces that they declare themselves. This package implements
// these with a [Control], which is a ctl.Controller with the few calls that are needed here. A
// group of a service is not stored: its run or connection would not outlive the daemon either.
//
// Read first: services.go, then groups.go and addresses.go.
package services
