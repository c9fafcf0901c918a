package config

import (
	"fmt"
	"net/netip"
	"os"
	"path"
	"slices"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/cm"
	"github.com/rocast/rocast/ctl/desired"
	"github.com/rocast/rocast/ctl/edges"
	"github.com/rocast/rocast/ctl/gather"
	"github.com/rocast/rocast/ctl/groupip"
	"github.com/rocast/rocast/ctl/logs"
	"github.com/rocast/rocast/ctl/neighbour"
	"github.com/rocast/rocast/ctl/perftest"
	"github.com/rocast/rocast/ctl/yamldoc"
)

// DefaultRepairMemory holds 16384 packets.
const DefaultRepairMemory = 64 << 20

// defaultMetrics has a port outside of 9100 to 9999, the range of Prometheus' list of exporters,
// which is full.
var defaultMetrics = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 7470)

// DefaultStateDir has the groups that a start restores, unless the config names another directory.
const DefaultStateDir = "/var/lib/rocast"

// DefaultFile is the config file that rocastd reads unless --config names another.
const DefaultFile = "/etc/rocast/rocastd.yaml"

// Config is the daemon's config file. packaging/rocastd.yaml explains it to its users.
type Config struct {
	File        string   // where it was read
	Ports       []string // names or globs
	Socket      string
	SocketGroup string // the system group whose users may change multicast groups; empty: the daemon's
	ReadGroup   string // the system group whose users may read; empty: none but those of SocketGroup
	StateDir    string
	Mode        string // see afxdp.Mode
	Busy        bool   // an idle worker spins
	Workers     int    // number of forwarding threads; 0 means one
	Engine      string // auto: the kernel carries the plain packets of groups, if it can; or afxdp
	// RepairMemory is how many bytes of forwarded packets all forwarding threads together keep, for
	// groups with repair. 0: no group has it.
	RepairMemory uint64
	Egress       []Egress
	LogFormat    string
	LogLevel     string
	Metrics      netip.AddrPort    // where metrics are served over TCP; not valid: nowhere
	Perftest     []perftest.Config // the perftest services that start with the daemon
	CM           []cm.Config       // the group IPs that answer RDMA-CM when the daemon starts
	Neighbours   []neighbour.Config
	API          neighbour.API // where other boxes reach this one
	Hosts        gather.Config // where programs on hosts make groups
	Edges        edges.Config  // what may be shared
	Etcd         desired.Settings
}

var (
	modes      = []string{"copy", "zero-copy", "generic"}
	waits      = []string{"block", "busy"}
	engines    = []string{"auto", "afxdp"}
	stores     = []string{"files", "etcd"}
	logFormats = []string{logs.Auto, logs.Console, logs.JSON}
	logLevels  = logs.Levels
)

// Load reads a config file.
func Load(file string) (Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return Config{}, fmt.Errorf("read the config: %w; write this file, or name another one with --config", err)
	}
	c, err := Parse(text)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", file, err)
	}
	c.File = file
	return c, nil
}

// Parse reads the text of a config file and fills in what it leaves out. Its error is a
// yamldoc.Error.
func Parse(text []byte) (Config, error) {
	c := Config{Socket: api.DefaultSocket, StateDir: DefaultStateDir, Mode: modes[0], Engine: engines[0], LogFormat: logFormats[0], LogLevel: "info", RepairMemory: DefaultRepairMemory, Metrics: defaultMetrics}
	document, err := yamldoc.Parse(text, "the config")
	if err != nil {
		return Config{}, err
	}
	wait, neighbours, keptIn, etcd := waits[0], 0, stores[0], 0
	lines := map[string]int{}
	err = document.Fields(
		yamldoc.Field{Key: "ports", Set: c.readPorts, Needed: "ports: [NAME or GLOB, ...], the interfaces to carry " +
			"groups on"},
		yamldoc.Field{Key: "socket", Set: yamldoc.Into(&c.Socket, socketPath)},
		yamldoc.Field{Key: "socketGroup", Set: yamldoc.Into(&c.SocketGroup, yamldoc.Value.Text)},
		yamldoc.Field{Key: "readGroup", Set: yamldoc.Into(&c.ReadGroup, yamldoc.Value.Text)},
		yamldoc.Field{Key: "stateDir", Set: yamldoc.Into(&c.StateDir, yamldoc.Value.Path)},
		yamldoc.Field{Key: "mode", Set: yamldoc.Into(&c.Mode, oneOf(modes))},
		yamldoc.Field{Key: "wait", Set: yamldoc.Into(&wait, oneOf(waits))},
		yamldoc.Field{Key: "engine", Set: yamldoc.Into(&c.Engine, oneOf(engines))},
		yamldoc.Field{Key: "workers", Set: yamldoc.Into(&c.Workers, workers)},
		yamldoc.Field{Key: "repairMemory", Set: yamldoc.Into(&c.RepairMemory, memory)},
		yamldoc.Field{Key: "egress", Set: c.readEgress},
		yamldoc.Field{Key: "log", Set: func(v yamldoc.Value) error {
			return v.Fields(
				yamldoc.Field{Key: "format", Set: yamldoc.Into(&c.LogFormat, oneOf(logFormats))},
				yamldoc.Field{Key: "level", Set: yamldoc.Into(&c.LogLevel, oneOf(logLevels))},
			)
		}},
		yamldoc.Field{Key: "hook", Gone: "let a unit of its own run the program, behind rocast events -w --json: docs/operate.md"},
		yamldoc.Field{Key: "metrics", Set: yamldoc.Into(&c.Metrics, metricsAt)},
		yamldoc.Field{Key: "perftest", Set: c.readPerftest},
		yamldoc.Field{Key: "cm", Set: c.readCM},
		yamldoc.Field{Key: "neighbours", Set: func(v yamldoc.Value) error {
			neighbours = v.Line()
			return c.readNeighbours(v)
		}},
		yamldoc.Field{Key: "api", Set: func(v yamldoc.Value) error {
			lines["api"] = v.Line()
			return yamldoc.Into(&c.API, neighbour.ReadAPI)(v)
		}},
		yamldoc.Field{Key: "hosts", Set: func(v yamldoc.Value) error {
			lines["hosts"] = v.Line()
			return yamldoc.Into(&c.Hosts, gather.ReadConfig)(v)
		}},
		yamldoc.Field{Key: "edges", Set: func(v yamldoc.Value) error {
			lines["edges"] = v.Line()
			return yamldoc.Into(&c.Edges, edges.ReadConfig)(v)
		}},
		yamldoc.Field{Key: "store", Set: func(v yamldoc.Value) error {
			etcd = v.Line()
			return yamldoc.Into(&keptIn, oneOf(stores))(v)
		}},
		yamldoc.Field{Key: "etcd", Set: func(v yamldoc.Value) (err error) {
			etcd = v.Line()
			c.Etcd, err = desired.ReadSettings(v)
			return err
		}},
	)
	if err == nil && (keptIn == stores[1]) != c.Etcd.On() {
		err = yamldoc.Errorf(etcd, "store is %s; etcd: {endpoints: [URL, ...]} and store: etcd need each other, so write both or "+
			"neither", keptIn)
	}
	if err == nil {
		err = c.checkNeighbours(neighbours)
	}
	if err == nil {
		err = c.checkListeners(lines)
	}
	if err == nil && c.Edges.On() && !c.Hosts.On() && len(c.Neighbours) == 0 {
		err = yamldoc.Errorf(lines["edges"], "edges needs hosts: {listen: ADDRESS:PORT, ...}, where edges ask for their mappings, or neighbours: that do")
	}
	c.Busy = wait == "busy"
	return c, err
}

func (c *Config) readPorts(v yamldoc.Value) error {
	err := v.Each("port", func(item yamldoc.Value) error {
		name, err := pattern(item)
		c.Ports = append(c.Ports, name)
		return err
	})
	if err == nil && len(c.Ports) == 0 {
		err = v.Errorf("names no interface; name at least one")
	}
	return err
}

// pattern reads the name of an interface, or a glob.
func pattern(v yamldoc.Value) (string, error) {
	text, err := v.Text()
	if err != nil {
		return "", err
	}
	if _, err := path.Match(text, ""); err != nil {
		return "", v.Errorf("%q is not a valid glob; close its brackets", text)
	}
	return text, nil
}

func (c *Config) readPerftest(v yamldoc.Value) (err error) {
	c.Perftest, err = readServices(v, "perftest", perftest.ReadConfig, func(p perftest.Config) netip.Addr { return p.GroupIP })
	return err
}

func (c *Config) readCM(v yamldoc.Value) (err error) {
	c.CM, err = readServices(v, "cm", cm.ReadConfig, func(m cm.Config) netip.Addr { return m.GroupIP })
	return err
}

// readServices reads a list of services, each at a group IP of its own.
func readServices[C any](v yamldoc.Value, noun string, read func(yamldoc.Value) (C, error), groupIP func(C) netip.Addr) (l []C, err error) {
	err = v.Each(noun, func(item yamldoc.Value) error {
		config, err := read(item)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(l, func(other C) bool { return groupIP(other) == groupIP(config) }) {
			return item.Errorf("has the same groupIP %v as an entry above; keep one of them", groupIP(config))
		}
		if len(l) == groupip.MaxServices {
			return item.Errorf("is one more than the limit of %d; remove it", groupip.MaxServices)
		}
		l = append(l, config)
		return nil
	})
	return l, err
}

func socketPath(v yamldoc.Value) (string, error) {
	text, err := v.Path()
	if err == nil && len(text) > api.MaxSocketBytes {
		err = v.Errorf("%q is longer than %d bytes, the limit for the path of a socket; write a shorter path",
			text, api.MaxSocketBytes)
	}
	return text, err
}

// maxWorkers bounds the forwarding threads. A port needs at least one queue for each of them, and
// hardly any NIC has more than this.
const maxWorkers = 64

// workers reads the number of forwarding threads.
func workers(v yamldoc.Value) (int, error) {
	n, err := v.Uint(maxWorkers)
	if err == nil && n == 0 {
		err = v.Errorf("is 0; at least one thread must forward frames, so write 1 or more")
	}
	return int(n), err
}

// memory reads a number of bytes, in words such as 64MiB, or 0. How much fits is checked when the
// packet memory is made.
func memory(v yamldoc.Value) (uint64, error) {
	if text, err := v.Text(); err != nil || text == "0" {
		return 0, err
	}
	return v.Size(", or 0 for none")
}

// metricsAt reads where metrics are served. An empty value turns them off.
func metricsAt(v yamldoc.Value) (netip.AddrPort, error) {
	if v.IsEmpty() {
		return netip.AddrPort{}, nil
	}
	return v.AddrPort(fmt.Sprintf("%v or [::]:%d, or \"\" for none", defaultMetrics, defaultMetrics.Port()))
}

func oneOf(words []string) func(yamldoc.Value) (string, error) {
	return func(v yamldoc.Value) (string, error) {
		text, err := v.Text()
		if err == nil && !slices.Contains(words, text) {
			err = v.Errorf("%q is not one of %q", text, words)
		}
		return text, err
	}
}
