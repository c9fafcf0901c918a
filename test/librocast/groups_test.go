package librocast

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// fixedHosts is a box with the same hosts in each group. It keeps who leaves and ends what.
type fixedHosts struct {
	mu      sync.Mutex
	names   []string          // of groups, in the order of their QPNs
	ports   map[string]string // where programs answer, by group and host
	ended   map[string]string // why, by group
	removed []string
}

func (b *fixedHosts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var own struct {
		Port   int     `json:"port"`
		Ready  bool    `json:"ready"`
		Secret *string `json:"secret"`
		Policy *string `json:"policy"`
	}
	_ = json.NewDecoder(r.Body).Decode(&own)
	ip, _, _ := net.SplitHostPort(r.RemoteAddr)
	name := strings.TrimPrefix(r.URL.Path, "/v1/hosts/")
	if r.Method == http.MethodDelete {
		b.remove(w, ip, name, r.URL.RawQuery)
		return
	}
	if name == "secret" || name == "says" {
		shown := "nothing"
		for _, text := range []*string{own.Secret, own.Policy} {
			if text != nil {
				shown = *text
			}
		}
		http.Error(w, fmt.Sprintf(`{"error":{"kind":"forbidden","message":"it was shown %s"}}`, shown), http.StatusForbidden)
		return
	}
	if kind := map[string]string{"stale": "stale", "replaced": "not-found", "full": "unavailable"}[name]; kind != "" && (own.Ready || name != "replaced") {
		http.Error(w, fmt.Sprintf(`{"error":{"kind":%q,"message":"as %s as it is"}}`, kind, name), http.StatusConflict)
		return
	}
	for {
		answer, version := b.group(name, ip, own.Port)
		if version != r.URL.Query().Get("seen") {
			fmt.Fprint(w, answer)
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (b *fixedHosts) group(name, ip string, port int) (answer, version string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if why := b.ended[name]; why != "" {
		return fmt.Sprintf(`{"state":"ended","version":"ended","reason":%q}`, why), "ended"
	}
	if !slices.Contains(b.names, name) {
		b.names = append(b.names, name)
	}
	b.ports[name+ip] = fmt.Sprint(port)
	var members []string
	for i, host := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"} {
		if i == 2 && name != "g6" {
			break
		}
		role := "both"
		if i == 0 && name == "g4" {
			role = "source"
		}
		members = append(members, fmt.Sprintf(`{"ip":%q,"role":%q,"port":%s}`, host, role, max("0", b.ports[name+host])))
		version += b.ports[name+host] + "-"
	}
	policy := map[string]string{"quorum": `"ack":"quorum 1","evicts":true,`, "evicts": `"evicts":true,`}[name]
	return fmt.Sprintf(`{`+policy+`"state":"running","version":%q,"ip":"127.0.0.100","qpn":%d,"mtu":1024,"clearToSend":true,`+
		`"memory":[{"va":"0x0","length":64,"rkey":"0x1"}],"members":[%s]}`, version, 1000+slices.Index(b.names, name), strings.Join(members, ",")), version
}

func (b *fixedHosts) remove(w http.ResponseWriter, ip, name, query string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if query == "whole=1" && name == "g9" { // a source that returns to the group
		fmt.Fprint(w, `{}`)
		return
	}
	if query == "whole=1" {
		http.Error(w, `{"error":{"kind":"unavailable","message":"later"}}`, http.StatusServiceUnavailable)
		return
	}
	b.removed = append(b.removed, strings.TrimSpace(fmt.Sprint(ip, " ", name, " ", query)))
	if query != "" && name == "operators" {
		http.Error(w, `{"error":{"kind":"forbidden","message":"group operators was not made by hosts"}}`, http.StatusForbidden)
		return
	}
	if query != "" {
		b.ended[name] = ip + " has ended group " + name
	}
	fmt.Fprint(w, `{}`)
}

// playGroups runs groups/main.c, and compares what it prints and what the box hears. Members of
// which the program closes the device leave in any order.
func playGroups(t *testing.T, what, want, removed string) {
	t.Helper()
	b := &fixedHosts{ports: map[string]string{}, ended: map[string]string{}}
	box := httptest.NewServer(b)
	defer box.Close()
	t.Setenv("ROCAST_BOX", strings.TrimPrefix(box.URL, "http://"))
	saysOf(t, "groups/main.c", wrappedVerbs(), map[string]string{what: strings.TrimSpace(want)}, "groups/device.c", "-pthread")
	if got := strings.Join(b.removed, ", "); got != removed {
		t.Errorf("the box hears\n%s\nwant\n%s", got, removed)
	}
}

// A program that is in several groups gets of each what belongs to it. Where it leaves one group,
// or one ends, the others go on. Closing the device leaves those that are left.
func TestSeveralGroupsInOneProcess(t *testing.T) {
	playGroups(t, "several", `
joined twice: this program is in group g2 already; leave it first
members beside 127.0.0.1: 0 1 0 0 0 0
g1 is full: 4 operations of group g1 are not complete, or their completions were not taken; take them first
readable: 1 0
g3: 30 is z
g2: 20 is p 21 is q
g1: 1 done 2 done 3 done 4 done
g1 there: 10 is a 11 is b 12 is c 13 is d
g2 there: 5 done 6 done
g3 there: 7 done
still a region: 2 groups have this memory as a region; leave them first
leave g2: ok
still a region: 1 groups have this memory as a region; leave them first
g3: 31 is y
a receiver ends g1: a receiver of group g1 cannot end it, and may leave it
g1: 10 done
end g1: ok
g1 there: 14 is e 15 failed; 127.0.0.1 has ended group g1
receive: 127.0.0.1 has ended group g1
g3: 32 is x
`, "127.0.0.1 g2, 127.0.0.1 g1 whole=1&tell=1, 127.0.0.1 g3, 127.0.0.2 g3, 127.0.0.2 g2, 127.0.0.2 g1")
}

// Several groups of a program have a thread each, or one for all, and none sees what is another's.
func TestThreads(t *testing.T) {
	const refused = " cannot send; join with ROCAST_SOURCE or ROCAST_BOTH"
	want := strings.TrimSpace(`
g7: 300; a receiver of group g7` + refused + `
g8: 300; a receiver of group g8` + refused + `
streams: ok
streams: ok
write: 262144
g2: 10 is b 1 done
g2 there: 20 is a 2 done
write: 1
end: ok
read: 262145
leave g1: ok
g2: 11 is c
`)
	playGroups(t, "threads", want, "127.0.0.1 g7, 127.0.0.2 g7, 127.0.0.1 g8, 127.0.0.2 g8, 127.0.0.1 g1, 127.0.0.1 g2, 127.0.0.2 g2, 127.0.0.2 g1")

	box := httptest.NewServer(&fixedHosts{ports: map[string]string{}, ended: map[string]string{}})
	defer box.Close()
	t.Setenv("ROCAST_BOX", strings.TrimPrefix(box.URL, "http://"))
	sources, err := filepath.Glob("../../host/*.c")
	if err != nil {
		t.Fatal(err)
	}
	path := compileFor(t, "thread", append(sources, "groups/main.c", "groups/device.c", "-libverbs", wrappedVerbs(), "-pthread")...)
	if got := run(t, path, "", "threads"); got != want {
		t.Errorf("with the sanitizer of threads:\ngot  %s\nwant %s", got, want)
	}
}

// A source sees what all receivers have, and not who lacks something, unless it has a connection to
// each. What has failed is never complete.
func TestProgress(t *testing.T) {
	const nobody = `slowest "" lacks 0`
	playGroups(t, "progress", `
joined: 0, posted 0, completed 0, received 0, `+nobody+`
posted: 0, posted 32, completed 0, received 0, `+nobody+`
g1: 1 done 2 done
one waits: 0, posted 32, completed 2, received 0, `+nobody+`
one was refused: 0, posted 32, completed 2, received 0, `+nobody+`
g1 there: 10 is a 11 is b
there: 0, posted 0, completed 0, received 2, `+nobody+`
another process: -9, posted 0, completed 0, received 0, `+nobody+`
g1: 3 failed
it has failed: 0, posted 32, completed 2, received 0, `+nobody+`
by the group: 0, posted 1, completed 0, received 0, `+nobody+`
no receiver: 0, posted 1, completed 0, received 0, `+nobody+`
one receiver: 0, posted 1, completed 0, received 0, slowest "127.0.0.3" lacks 1
g6: 1 done 2 done
both: 0, posted 1, completed 1, received 0, `+nobody+`
rate: ok
20 bytes go
g6: 3 done
0 go before their time
no rate: ok
g6: 4 done
`, "127.0.0.1 g6, 127.0.0.1 g1, 127.0.0.2 g6, 127.0.0.2 g1, 127.0.0.3 g6")
}

// What is posted goes at the rate of the group: an operation when those before have had their time.
// A program that calls late makes up for it, but not for a long time.
func TestRate(t *testing.T) {
	const told = ", which the descriptor tells: "
	playGroups(t, "rate", `
a receiver: a receiver of group g1 sends nothing, so it has no rate
another process: -9
rate: ok
at 0 us:
at 0 us: 1, the next at 20000 us
at 19999 us:, the next at 20000 us
at 20000 us`+told+`2
at 49000 us:, the next at 50000 us
at 57000 us`+told+`3, the next at 80000 us
at 110000 us`+told+`4
at 129000 us:, the next at 130000 us
at 130000 us`+told+`5, the next at 160000 us
faster: ok
at 130000 us:, the next at 133000 us
a byte a second: ok
at 140000 us:, the next at 30130000 us
the most: ok
at 140000 us: 6 7 8 9
never: ok
at 1000000000 us:, the next at 1152921504736846 us
none: ok
at 1000000000 us: 10
leave: ok
`, "127.0.0.1 g1, 127.0.0.2 g1")
}

// An operation that the rate holds back arrives, though the group breaks twice meanwhile. What the
// other member has of the second group says nothing of what only the first one has carried.
func TestAnOperationIsHeldOverTwoFallbacks(t *testing.T) {
	playGroups(t, "held", `
rate: ok
by single connections: 1
by the group: 1
one: 20 is m
probe: ok
by single connections: 2
no rate: ok
one: 1 done
two: 1
`, "127.0.0.1 g9, 127.0.0.2 g9")
}

// While members use single connections they do not ask the box, so they tell each other that a
// member has ended the group: the one that sends, or one to which it sends. Then the sender passes
// it on to the others.
func TestAGroupThatEndsDuringAFallback(t *testing.T) {
	playGroups(t, "end", `
g4: 1 done
by single connections
end: ok
received 1, failed 1; 127.0.0.1 says that group g4 has ended
g5: 10 is a
end: ok
received 0, failed 0; 127.0.0.2 says that group g5 has ended
g6: 10 is a
end: ok
received 0, failed 0; 127.0.0.2 says that group g6 has ended
received 1, failed 1; 127.0.0.1 says that group g6 has ended
`, "127.0.0.1 g4 whole=1&tell=1, 127.0.0.2 g5 whole=1&tell=1, 127.0.0.2 g6 whole=1&tell=1, 127.0.0.1 g6, 127.0.0.1 g5, 127.0.0.2 g4, 127.0.0.3 g6")
}

// A group that hosts have not made is only left.
func TestAGroupThatNobodyMayEnd(t *testing.T) {
	playGroups(t, "refused", "end: the box refuses group operators: group operators was not made by hosts",
		"127.0.0.1 operators whole=1&tell=1, 127.0.0.1 operators")
}

// A program that is refused leaves, so that nobody waits for its host, unless the box has said that
// the program is not in the group: then another program of the host may be, which would leave.
func TestAProgramThatIsNotInItsGroupDoesNotLeaveIt(t *testing.T) {
	playGroups(t, "outside", `
stale: the box refuses group stale: as stale as it is
replaced: the box refuses group replaced: as replaced as it is
full: the box refuses group full: as full as it is
`, "127.0.0.1 full")
}

// Where the kernel does not find the MAC of the group's IP, because an answer of the network was
// lost, a join asks again until its time is up. Another error ends it at once.
func TestAJoinAsksTheNetworkAgain(t *testing.T) {
	playGroups(t, "lost", `
some: done at 0, class 0
all: the queue pair cannot be connected to 127.0.0.100 (Connection timed out); does a route lead there, and does it answer ARP?
none: the queue pair cannot be connected to 127.0.0.100 (Invalid argument); does a route lead there, and does it answer ARP?
again: done at 0, class 0
`, "127.0.0.1 some, 127.0.0.1 all, 127.0.0.1 none, 127.0.0.1 again")
}

// The box is shown the secret that the program has set. Without one nothing is said of secrets,
// which a box of an older version does not know.
func TestTheSecretThatIsShown(t *testing.T) {
	const bad = "a secret has up to 64 letters, digits and characters of -_.+/=; write such a one, also into ROCAST_SECRET"
	playGroups(t, "secrets", `
secret: the box refuses group secret: it was shown nothing
set: ok
secret: the box refuses group secret: it was shown s3cret-_.+/=
bad: `+bad+`
long: `+bad+`
none: ok
secret: the box refuses group secret: it was shown nothing
`, "127.0.0.1 secret, 127.0.0.1 secret, 127.0.0.1 secret")
}

// The box is told the policy that the program has set. Without one nothing is
// said of policies, which a box of an older version does not know.
func TestThePolicyThatIsSaid(t *testing.T) {
	const bad = "a policy is KEY=VALUE,... of up to 511 letters, digits, spaces and characters of -=,. with the keys of a group file; write such a one, also into ROCAST_POLICY"
	playGroups(t, "policies", `
says: the box refuses group says: it was shown nothing
set: ok
says: the box refuses group says: it was shown ack=quorum 2,repair=off
bad: `+bad+`
long: `+bad+`
none: ok
says: the box refuses group says: it was shown nothing
environment: `+bad+`
`, "127.0.0.1 says, 127.0.0.1 says, 127.0.0.1 says")
}

// An operator's group may be complete before all receivers have an operation. The program hears so,
// and cannot have the fallback, which waits for all.
func TestAGroupThatWaitsForSomeReceivers(t *testing.T) {
	const refused = "goes on without some of its receivers (ack, evict or on-fatal in its policy), and single connections wait for all; join it with without_fallback"
	playGroups(t, "policy", `
quorum: group quorum `+refused+`
quorum: done at 1, class 0
quorum: done at 1, class 0
evicts: group evicts `+refused+`
evicts: done at 0, class 0
plain: done at 0, class 0
class: ok
plain: done at 0, class 104
class: a traffic class is 0 to 255, and not 256
`, "127.0.0.1 quorum, 127.0.0.1 quorum, 127.0.0.1 quorum, 127.0.0.1 evicts, 127.0.0.1 evicts, 127.0.0.1 plain, 127.0.0.1 plain")
}

// A program hears how much it would have to be allowed to pin, and whether its memory can be sent
// from or written to. Memory of another device is named by offsets.
func TestMemory(t *testing.T) {
	playGroups(t, "memory", `
40 KiB: ok
24 KiB more: 24576 bytes cannot be registered (Cannot allocate memory)
and a byte: 24576 bytes cannot be registered: this program would have 68 KiB pinned, and may have 64; write ulimit -l 68 before it, or LimitMEMLOCK=68K into its unit
to send: 28672 bytes cannot be registered: this program would have 68 KiB pinned, and may have 64; write ulimit -l 68 before it, or LimitMEMLOCK=68K into its unit
and elsewhere: 28672 bytes cannot be registered: this program would have 78 KiB pinned, and may have 64; write ulimit -l 78 before it, or LimitMEMLOCK=78K into its unit
less: ok
40 KiB again: 40960 bytes cannot be registered (Cannot allocate memory)
17 pages: 69632 bytes cannot be registered: this program would have 68 KiB pinned, and may have 64; write ulimit -l 68 before it, or LimitMEMLOCK=68K into its unit
17 pages of root: 69632 bytes cannot be registered (Cannot allocate memory)
nothing may be pinned: 1 bytes cannot be registered: this program would have 4 KiB pinned, and may have 0; write ulimit -l 4 before it, or LimitMEMLOCK=4K into its unit
another error: 69632 bytes cannot be registered (Invalid argument)
read-only: 3 bytes cannot be registered to be written (Bad address): they are not all there, or are read-only or of a file; use other memory, or register them only to send from
to send: ok
g1: region 0 was registered only to send from; register it to be written
receive: this memory was registered only to send from; receive into other memory
g1: 1 done 2 done 3 done
g1 there: 10 is a 11 is b 12 is c
nothing there: 1 bytes cannot be registered to be read (Bad address): they are not all there, or the kernel pins no such memory that is read-only; send from a copy
of a GPU: ok
g1: 4 done 5 done 6 done
g1 there: 20 is x 21 is y 22 is z
beside it: 1 bytes at 0x100a are not in the registered memory, which has 3 bytes at 0x1007
nothing: there is no memory to register
no such device: this device takes no memory of other devices (Operation not supported); copy the bytes into memory of the host
another error: 1 bytes from 4096 on of the dmabuf 99 cannot be registered (Bad file descriptor)
4 registrations
0 registrations
`, "127.0.0.1 g1, 127.0.0.2 g1")
}
