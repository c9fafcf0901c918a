package config

import "reflect"

// Key is a key of the config file.
type Key struct {
	Name    string // with the keys around it: log.level
	Default string // "": none
	Unit    string // what the value is
	// Reloads says that a reload takes a change over, and for what. "": the key changes only at a
	// restart.
	Reloads string
	// value returns what the file says. nil: a key above has it.
	value func(*Config) any
}

// Keys lists the keys of the config file. It is what the reference of the config is made of, and
// what a reload goes by.
var Keys = []Key{
	{"ports", "", "list of interface names or globs", "ports come and go", func(c *Config) any { return c.Ports }},
	{"socket", "/run/rocast/rocast.sock", "path", "", func(c *Config) any { return c.Socket }},
	{"socketGroup", "the daemon's group", "system group, by name or number", "", func(c *Config) any { return c.SocketGroup }},
	{"readGroup", "none", "system group, by name or number", "", func(c *Config) any { return c.ReadGroup }},
	{"stateDir", "/var/lib/rocast", "path", "", func(c *Config) any { return c.StateDir }},
	{"mode", "copy", "copy, zero-copy or generic", "", func(c *Config) any { return c.Mode }},
	{"wait", "block", "block or busy", "", func(c *Config) any { return c.Busy }},
	{"engine", "auto", "auto or afxdp", "", func(c *Config) any { return c.Engine }},
	{"workers", "1", "forwarding threads, 1 to 64", "", func(c *Config) any { return max(c.Workers, 1) }},
	{"repairMemory", "64MiB", "size (KiB, MiB, GiB), or 0", "", func(c *Config) any { return c.RepairMemory }},
	{"egress", "", "list", "for ports that come with the same reload", func(c *Config) any { return c.Egress }},
	{"egress.port", "", "interface name or glob", "", nil},
	{"egress.kmin", "", "size (KiB, MiB)", "", nil},
	{"egress.kmax", "", "size (KiB, MiB)", "", nil},
	{"egress.percent", "20", "percent of the copies, 1 to 100", "", nil},
	{"egress.limit", "", "size (KiB, MiB), 32KiB or more", "", nil},
	{"log.format", "auto", "auto, console or json", "", func(c *Config) any { return c.LogFormat }},
	{"log.level", "info", "debug, info, warn or error", "at once", func(c *Config) any { return c.LogLevel }},
	{"metrics", "127.0.0.1:7470", "address:port, or empty", "", func(c *Config) any { return c.Metrics }},
	{"perftest", "", "list; its items also take the policy keys of a group file", "", func(c *Config) any { return c.Perftest }},
	{"perftest.groupIP", "", "IP", "", nil},
	{"perftest.receivers", "", "IP, or list of IPs", "", nil},
	{"perftest.port", "18515", "TCP port", "", nil},
	{"perftest.allow", "the subnet of groupIP", "network, or list of networks", "", nil},
	{"cm", "", "list; its items also take the policy keys of a group file", "", func(c *Config) any { return c.CM }},
	{"cm.groupIP", "", "IP", "", nil},
	{"cm.receivers", "", "IP, or list of IPs", "", nil},
	{"cm.port", "", "port number of RDMA-CM", "", nil},
	{"cm.allow", "the subnet of groupIP", "network, or list of networks", "", nil},
	{"cm.ack", "all", "all, or quorum N", "", nil},
	{"cm.choose", "false", "true or false", "", nil},
	{"cm.memory", "none", "private-data, perftest or regions", "", nil},
	{"neighbours", "", "list", "", func(c *Config) any { return c.Neighbours }},
	{"neighbours.name", "", "DNS name", "", nil},
	{"neighbours.address", "", "IP", "", nil},
	{"neighbours.url", "", "https://HOST:PORT", "", nil},
	{"neighbours.local", "the source address of the route", "IP", "", nil},
	{"neighbours.behind", "what the routes say", "list of networks", "", nil},
	{"neighbours.edge", "false", "true or false", "", nil},
	{"api", "off", "", "", func(c *Config) any { return c.API }},
	{"api.listen", "", "address:port", "", nil},
	{"api.cert", "", "path", "", nil},
	{"api.key", "", "path", "", nil},
	{"api.ca", "", "path", "", nil},
	{"api.clients", "none", "list of names in certificates", "", nil},
	{"api.readClients", "none", "list of names in certificates", "", nil},
	{"hosts", "off", "", "", func(c *Config) any { return c.Hosts }},
	{"hosts.listen", "", "address:port", "", nil},
	{"hosts.groupIPs", "", "IP, or list of one IPv4 and one IPv6 address", "", nil},
	{"edges", "off", "", "", func(c *Config) any { return c.Edges }},
	{"edges.addresses", "", "list of one IPv4 and one IPv6 range of multicast addresses", "", nil},
	{"edges.wires", "none", "list", "", nil},
	{"edges.wires.ip", "", "IP", "", nil},
	{"edges.wires.host", "", "IP", "", nil},
	{"store", "files", "files or etcd", "", func(c *Config) any { return c.Etcd.On() }},
	{"etcd", "", "", "", func(c *Config) any { return c.Etcd }},
	{"etcd.endpoints", "", "list of URLs", "", nil},
	{"etcd.prefix", "/rocast", "prefix of etcd's keys", "", nil},
	{"etcd.lease", "5s", "duration", "", nil},
	{"etcd.cert", "", "path", "", nil},
	{"etcd.key", "", "path", "", nil},
	{"etcd.ca", "", "path", "", nil},
}

// Differences returns the keys whose values differ in two configs, in the order of Keys.
func Differences(a, b *Config) (keys []Key) {
	for _, k := range Keys {
		if k.value != nil && !reflect.DeepEqual(k.value(a), k.value(b)) {
			keys = append(keys, k)
		}
	}
	return keys
}
