// Package groupip has what the services at group IPs share: the config of such a service (the
// address, the receivers behind it, and the hosts that may use it), the address on the box, the
// list of the services that are up, and what the keys of a queue pair say. perftest's helper and
// the CM proxy are such services.
package groupip
