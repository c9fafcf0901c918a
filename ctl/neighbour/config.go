package neighbour

import (
	"net/netip"
	"net/url"
	"regexp"
	"slices"

	"github.com/rocast/rocast/ctl/yamldoc"
)

// Max bounds the neighbours of a box. It is more than the ports of any box.
const Max = 256

// Config is a neighbour: another box that carries groups to the members behind it. It is one item
// of the key neighbours of the daemon's config.
type Config struct {
	Name    string     // the first DNS name of the box's certificate
	Address netip.Addr // its link address: the routes to the members behind it lead to this address
	URL     string     // of its API: https://HOST:PORT
	// Local is this box's link address towards the neighbour. If it is not valid, it is the source
	// address of the kernel's route to Address.
	Local netip.Addr
	// Behind are the networks that are behind the box, where a plain router between hides that from
	// the routes.
	Behind []netip.Prefix
	// Edge: this box is an edge of that one. It maps what that box sends once for several boxes.
	Edge bool
}

// API is the key api of the daemon's config: where other boxes reach this one, and the files with
// which it identifies itself. The zero API is off.
type API struct {
	Listen netip.AddrPort
	Files  Files
	// Clients are the names in the certificates of programs that may use the whole API, ReadClients
	// of those that may only read. Other peers are boxes, and may only ask for branches.
	Clients, ReadClients []string
}

// On reports whether other boxes can reach this one.
func (a *API) On() bool { return a.Listen.IsValid() }

// Read reads one item of neighbours.
func Read(v yamldoc.Value) (c Config, err error) {
	err = v.Fields(
		yamldoc.Field{Key: "name", Set: yamldoc.Into(&c.Name, name), Needed: "name: WORD, the DNS name in the box's certificate"},
		yamldoc.Field{Key: "address", Set: yamldoc.Into(&c.Address, address), Needed: "address: ADDRESS, the box's link address"},
		yamldoc.Field{Key: "url", Set: yamldoc.Into(&c.URL, apiURL), Needed: "url: https://HOST:PORT, where the box's api listens"},
		yamldoc.Field{Key: "local", Set: yamldoc.Into(&c.Local, address)},
		yamldoc.Field{Key: "behind", Set: c.readBehind},
		yamldoc.Field{Key: "edge", Set: yamldoc.Into(&c.Edge, yamldoc.Value.Bool)},
	)
	if err == nil && c.Local.IsValid() && c.Local.Is4() != c.Address.Is4() {
		err = v.Errorf("has the address %v and local %v, and a link has addresses of one family; write two of the "+
			"same family", c.Address, c.Local)
	}
	if err == nil && c.Local == c.Address {
		err = v.Errorf("has the same address %v as local; local is this box's address, so write that or remove it", c.Address)
	}
	return c, err
}

func (c *Config) readBehind(v yamldoc.Value) error {
	return v.Each("network", func(item yamldoc.Value) error {
		text, err := item.Text()
		if err != nil {
			return err
		}
		network, err := netip.ParsePrefix(text)
		if err != nil || network != network.Masked() || network.Addr().Is4In6() {
			return item.Errorf("%q is not a network; write one such as 10.82.0.0/22", text)
		}
		c.Behind = append(c.Behind, network)
		return nil
	})
}

// ReadAPI reads the key api.
func ReadAPI(v yamldoc.Value) (a API, err error) {
	err = v.Fields(
		yamldoc.Field{Key: "listen", Set: yamldoc.Into(&a.Listen, listen), Needed: "listen: ADDRESS:PORT, where other boxes reach this one"},
		yamldoc.Field{Key: "cert", Set: yamldoc.Into(&a.Files.Cert, yamldoc.Value.Path), Needed: "cert: FILE, this box's certificate"},
		yamldoc.Field{Key: "key", Set: yamldoc.Into(&a.Files.Key, yamldoc.Value.Path), Needed: "key: FILE, the certificate's private key"},
		yamldoc.Field{Key: "ca", Set: yamldoc.Into(&a.Files.CA, yamldoc.Value.Path), Needed: "ca: FILE, the certificate that signs those of all boxes"},
		yamldoc.Field{Key: "clients", Set: clients(&a.Clients)},
		yamldoc.Field{Key: "readClients", Set: clients(&a.ReadClients)},
	)
	both := slices.IndexFunc(a.Clients, func(name string) bool { return slices.Contains(a.ReadClients, name) })
	if err == nil && both >= 0 {
		err = v.Errorf("has %s in clients and in readClients; a program that may change groups may read, so remove it from readClients",
			a.Clients[both])
	}
	return a, err
}

func clients(to *[]string) func(yamldoc.Value) error {
	return func(v yamldoc.Value) error {
		return v.Each("client", func(item yamldoc.Value) error {
			client, err := name(item)
			*to = append(*to, client)
			return err
		})
	}
}

var nameForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)

func name(v yamldoc.Value) (string, error) {
	text, err := v.Text()
	if err == nil && !nameForm.MatchString(text) {
		err = v.Errorf("%q is not the name of a box; write a DNS name such as leaf2: up to 63 small letters, digits, "+
			"'.' or '-'", text)
	}
	return text, err
}

func address(v yamldoc.Value) (netip.Addr, error) {
	addr, err := v.Addr()
	if err == nil && (!addr.IsGlobalUnicast() || addr.IsLoopback()) {
		err = v.Errorf("%v is not an address that a box can have on the fabric; write a unicast address", addr)
	}
	return addr, err
}

func apiURL(v yamldoc.Value) (string, error) {
	text, err := v.Text()
	if err != nil {
		return "", err
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Port() == "" || u.Hostname() == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return "", v.Errorf("%q is not the URL of an API; write https://HOST:PORT", text)
	}
	return text, nil
}

func listen(v yamldoc.Value) (netip.AddrPort, error) {
	return v.AddrPort("10.9.0.1:7471 or [fd00::1]:7471")
}
