package librocast

import (
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

const (
	noStreams = "-1 group g1 carries no streams; call rocast_use_streams first"
	streams   = "-1 group g1 carries streams; call rocast_stream_write and rocast_stream_read"
	used      = "-1 group g1 has operations or receives whose completions were not taken; use streams before they are posted"
	late      = "; call rocast_stream_end again"
	torn      = "is no stream, or lacks a piece; all members use streams, or none"
	mixed     = "is parts of two streams at the same time; a member begins its stream when the one before has ended"
	sizes     = `
0 in 1 and 1 pieces
1 in 1 and 1 pieces
262143 in 1 and 1 pieces
262144 in 2 and 2 pieces
262145 in 2 and 2 pieces
524288 in 3 and 3 pieces
524289 in 3 and 3 pieces
1835008 in 8 and 8 pieces
of 3670018 bytes 3670018 were posted, 3670018 are complete and 3670018 have come
pinned: 528384 bytes
leave: 0
pinned: 0 bytes`
)

// A stream of any size goes through memory of bounded size, by the group and by single connections.
// Its receivers have every byte once and in order, and know where it ends. A member that comes in
// the middle begins with the next stream.
func TestStreams(t *testing.T) {
	sources, err := filepath.Glob("../../host/*.c")
	if err != nil {
		t.Fatal(err)
	}
	path := compile(t, append(sources, "streams/main.c", "groups/device.c", "-libverbs", wrappedVerbs(), "-pthread")...)
	for what, want := range map[string]string{
		"sizes":    sizes,
		"fallback": sizes,
		"spoilt":   sizes,
		"waits": `
nothing has come: 0
nothing to write: 0
write: 524288
read: 262144 at 0
write: 524288
read: 262144 at 262144
poll: 0
poll there: 0
read: 262144 at 524288
read: 262144 at 786432
write: 524288
write: 262144
end: -6 not all receivers of group g1 have the whole stream within 0 ms` + late + `
write: -1 a stream of group g1 is ending; call rocast_stream_end until it returns 0
read: 262144 at 1048576
end: -6 not all receivers of group g1 have the whole stream within 10 ms` + late + `
read: 262144 at 1310720
read: 262144 at 1572864
end: 0
read: 0 at 1835008, the last
write: 3
end: 0
read: 3 at 0, the last`,
		"refused": `
no streams: ` + noStreams + `
no streams: ` + noStreams + `
no streams: ` + noStreams + `
small: -1 262143 bytes are less than the 262144 of one piece of a stream
an operation: ` + used + `
a receive: ` + used + `
a completion: ` + used + `
no memory: -3 1573056 bytes cannot be registered (Invalid argument)
another process: 1
all: 0
pinned: 6 pieces
a default: 0
pinned: 5 pieces
one piece of both kinds: 0
pinned: 2 pieces
again: -1 group g1 carries streams already
send: ` + streams + `
write: ` + streams + `
receive: ` + streams + `
a receiver writes: -1 a receiver of group g1 cannot send; join with ROCAST_SOURCE or ROCAST_BOTH
a receiver ends: -1 a receiver of group g1 cannot send; join with ROCAST_SOURCE or ROCAST_BOTH
a source reads: -1 the source of group g1 receives nothing; join with ROCAST_BOTH
another process: 1`,
		"cut": `
write: 524288
read: 262144 at 0
end of the group: 0
read: 262144 at 262144
read: -8 127.0.0.1 has ended group g1
read: -8 127.0.0.1 has ended group g1
write: 524288
read: 262144 at 0
read: 262144 at 262144
read: -8 127.0.0.1 has ended group g3
write: -8 127.0.0.1 has ended group g2`,
		"late": `
write: 262145
read: 262144 at 0
write: 262144
read: 262144 at 262144
the late one: 0
write: 262144
read: 262144 at 524288
the late one: 0
write: 262144
read: 262144 at 786432
the late one: 0
end: 0
read: 1 at 1048576, the last
the late one: 0
write: 262149
read: 262144 at 0
the late one: 262144 at 0
end: 0
read: 5 at 262144, the last
the late one: 5 at 262144, the last`,
		"others": `
begins: 10 at 0
twice: 0
goes on: 5 at 10
twice: 0
ends: 0 at 15, the last
twice: 0
nothing: 0 at 0, the last
twice: 0
is cut: 3 at 0
another: 4 at 0
the one before, again: 0
one that had ended, again: 0
an older one, again: 0
the end of that one, again: 0
the present one goes on: 1 at 4
of the one before: 0
a piece is lacking: -8 what comes by group g1 ` + torn + `
and later: -8 what comes by group g1 ` + torn + `
a stream: 1 at 0, the last
a stream: 1 at 0, the last
no stream: -8 what comes by group g2 ` + torn + `
a stream: 1 at 0, the last
a stream: 1 at 0, the last
no stream: -8 what comes by group g3 ` + torn + `
an immediate: -8 what comes by group g7 ` + torn,
		"mixed": `
one writes: 262144
two writes: 262144
of one: 262144 at 0
of two: 262144 at 0
two writes: 262144
of two: 262144 at 262144
one writes: 262144
of one: -8 what comes by group g3 ` + mixed + `
and later: -8 what comes by group g3 ` + mixed + `
one: 262144 at 0
two: 262144 at 0
one: 262144 at 262144
two: 262144 at 262144
` + strings.Repeat("begins: 1 at 0\n", 9) + `the first goes on: -8 what comes by group g1 ` + mixed,
		"rooms": `
no receive: -3 a receive cannot be posted (Cannot allocate memory)
pinned: 0 pieces
a stream: ` + noStreams + `
again: 0
one receive: -3 a receive cannot be posted (Cannot allocate memory)
write: -8 group g2 has no way to its members any more; leave it
end: -8 group g2 has no way to its members any more; leave it
read: -8 group g2 has no way to its members any more; leave it
pinned: 8 pieces
leave: 0
pinned: 4 pieces`,
		"both": `
write: 262147
read: 262144 at 0
end: 0
read: 3 at 262144, the last
write: 262147
read: 262144 at 0
end: 0
read: 3 at 262144, the last
write: 262147
read: 262144 at 0
end: 0
read: 3 at 262144, the last
write: 524288
write: 262144
end: -6 not all receivers of group g1 have the whole stream within 0 ms` + late + `
one: 262144 at 0
two: 262144 at 0
one: 0 at 262144, the last
two: 262144 at 262144
one: 0
two: 0
end: 0
end: 0
two: 0 at 524288, the last`,
	} {
		t.Run(what, func(t *testing.T) {
			box := httptest.NewServer(&fixedHosts{ports: map[string]string{}, ended: map[string]string{}})
			defer box.Close()
			t.Setenv("ROCAST_BOX", strings.TrimPrefix(box.URL, "http://"))
			if got := run(t, path, "", what); got != strings.TrimSpace(want) {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}
