// Package groupip reads what the daemon's config and its clients say about a service at a group IP:
// the address, the receivers behind it, and the hosts that may use it. perftest's helper and the CM
// proxy are such services.
package groupip
