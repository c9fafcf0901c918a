package yamldoc

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"unicode"
)

type document struct {
	name   string
	file   string
	size   uint64
	memory uint64
	ip     netip.Addr
	listen netip.AddrPort
	items  []uint64
}

func parse(text string) (document, error) {
	var d document
	v, err := Parse([]byte(text), "the file")
	if err != nil {
		return d, err
	}
	size := func(v Value) (uint64, error) { return v.Uint(1<<24 - 1) }
	return d, v.Fields(
		Field{Key: "name", Set: Into(&d.name, Value.Text), Needed: "name: WORD"},
		Field{Key: "file", Set: Into(&d.file, Value.Path)},
		Field{Key: "size", Set: Into(&d.size, size)},
		Field{Key: "memory", Set: Into(&d.memory, func(v Value) (uint64, error) { return v.Size(", or more") })},
		Field{Key: "ip", Set: Into(&d.ip, Value.Addr)},
		Field{Key: "listen", Set: Into(&d.listen, func(v Value) (netip.AddrPort, error) { return v.AddrPort("10.0.0.1:80") })},
		Field{Key: "items", Set: func(v Value) error {
			return v.EachOrOne("item", func(item Value) error {
				return item.Fields(Field{Key: "size", Needed: "size: N", Set: func(v Value) error {
					n, err := size(v)
					d.items = append(d.items, n)
					return err
				}})
			})
		}},
	)
}

func TestValuesAreReadAsWritten(t *testing.T) {
	d, err := parse("name: g1\nfile: /etc/x\nsize: 0x10\nip: fd00::1\nitems:\n  - {size: 1_000}\n  - {size: 0}\n")
	if err != nil {
		t.Fatal(err)
	}
	if d.name != "g1" || d.file != "/etc/x" || d.size != 16 || d.ip != netip.MustParseAddr("fd00::1") || !slices.Equal(d.items, []uint64{1000, 0}) {
		t.Errorf("read %+v", d)
	}
	if d, err := parse("name: g1\nlisten: '[fd00::1]:7471'\n"); err != nil || d.listen != netip.MustParseAddrPort("[fd00::1]:7471") {
		t.Errorf("read %+v, %v", d, err)
	}
	// A mark of the byte order is no text, and neither are these lines' ends control characters.
	if d, err := parse("\ufeffname: g\u00e9 # \u00a0\u0085size: 0X1f\r\nfile:\t/\U0001f600\n"); err != nil || d.name != "g\u00e9" || d.size != 31 || d.file != "/\U0001f600" {
		t.Errorf("read %+v, %v", d, err)
	}
	for text, want := range map[string]uint64{"3KiB": 3 << 10, "1000000MiB": 1000000 << 20, "9GiB": 9 << 30} {
		if d, err := parse("name: g1\nmemory: " + text + "\n"); err != nil || d.memory != want {
			t.Errorf("%s: %d, %v", text, d.memory, err)
		}
	}
	if d, err := parse("name: g1\nitems: {size: 7}\n"); err != nil || !slices.Equal(d.items, []uint64{7}) {
		t.Errorf("a list's only item: %+v, %v", d, err)
	}
}

// values reads values of each kind; the key old is one of earlier versions.
func values(text string) (on bool, items []string, err error) {
	v, err := Parse([]byte(text), "the file")
	if err != nil {
		return on, items, err
	}
	word := func(v Value) error {
		text, err := v.Text()
		if err == nil && text == "x" {
			err = v.Wrap(errors.New("x is no word; write another one"))
		}
		items = append(items, text)
		return err
	}
	return on, items, v.Fields(
		Field{Key: "on", Set: Into(&on, Value.Bool)},
		Field{Key: "word", Set: word},
		Field{Key: "words", Set: func(v Value) error { return v.Each("word", word) }},
		Field{Key: "pairs", Set: func(v Value) error {
			return v.Each("pair", func(v Value) error {
				return v.Fields(Field{Key: "word", Set: word}, Field{Key: "term", Gone: "write word"})
			})
		}},
	)
}

func TestBoolsAndLists(t *testing.T) {
	for text, want := range map[string]bool{"on: true\n": true, "on: True\n": true, "on: false\n": false, "word: a\n": false} {
		if on, _, err := values(text); err != nil || on != want {
			t.Errorf("%q: %v, %v", text, on, err)
		}
	}
	if _, items, err := values("words: [a, b]\npairs: [{word: c}]\n"); err != nil || !slices.Equal(items, []string{"a", "b", "c"}) {
		t.Errorf("%v, %v", items, err)
	}
	const noBool = "on is neither true nor false; write one of them, without quotes"
	for text, want := range map[string]string{
		"on: 'true'\n": "line 1: " + noBool, "on: [true]\n": "line 1: " + noBool, "on: yes\n": "line 1: " + noBool, "on: !!bool maybe\n": "line 1: " + noBool,
		"words: a\n": "line 1: words is a single word; write a list", "words: {a: b}\n": "line 1: words is a mapping; write a list",
		"words: [a, [b]]\n":                  "line 1: word 2 is a list; write one word",
		"word: x\n":                          "line 1: x is no word; write another one",
		"words:\n  - a\n  - x\n":             "line 3: x is no word; write another one",
		"pairs:\n  - word: a\n    word: x\n": `line 3: pair 1: key "word" was already given on line 2; keep one of them`,
		"pairs:\n  - word: x\n":              "line 2: pair 1: x is no word; write another one",
		"pairs:\n  - term: x\n":              `line 2: pair 1: key "term" is no longer known; write word`,
		"pairs:\n  - new: x\n":               `line 2: pair 1: key "new" is unknown here; the known keys are word`,
		"new: 1\n":                           `line 1: key "new" is unknown here; the known keys are on, word, words, pairs`,
	} {
		if _, _, err := values(text); err == nil || err.Error() != want {
			t.Errorf("%q\n got  %v\n want %s", text, err, want)
		}
	}
	if line := Line(errors.New("of another kind")); line != 0 {
		t.Errorf("line %d", line)
	}
}

func TestValuesAtTheirLimits(t *testing.T) {
	long := strings.Repeat("a", 1024)
	if d, err := parse("name: " + long + "\nsize: 16777215\n"); err != nil || d.name != long || d.size != 1<<24-1 {
		t.Errorf("%+v, %v", d, err)
	}
}

// A short text must not use a hundred times as much memory. Values of every form are counted:
// otherwise a form that is not counted would keep the parser busy.
func TestTooManyValuesAreRefusedUnread(t *testing.T) {
	for _, item := range []string{"1,", "a: ", "- ", "? ", "[", "{"} {
		long := "[" + strings.Repeat(item, maxSeparators)
		allocations := testing.AllocsPerRun(1, func() {
			if _, err := parse(long); err == nil || err.Error() != "line 1: the file holds more than 80000 values; split it" {
				t.Errorf("%q: %v", item, err)
			}
		})
		if allocations > 100 {
			t.Errorf("%q: %v allocations", item, allocations)
		}
	}
	if _, err := parse("name: " + strings.Repeat("-", maxSeparators-1)); err == nil || !strings.Contains(err.Error(), "write 1024 at most") {
		t.Errorf("as many as are allowed: %v", err)
	}
}

func TestMistakesNameLineThingAndMend(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "line 1: the file is empty; write its keys"},
		{"just a word", "line 1: the file is a single word; write a mapping with the keys name, file, size, memory, ip, listen, items"},
		{"name: a\n---\nname: b\n", "line 2: a second document starts here, and the file holds only one; remove it"},
		{"name: a\nsiez: 3\n", `line 2: key "siez" is unknown here; the known keys are name, file, size, memory, ip, listen, items`},
		{"name: a\n\nname: b\n", `line 3: key "name" was already given on line 1; keep one of them`},
		{"size: 1\n", "line 1: the file has no name; add name: WORD"},
		{"name:\nsize: 1\n", "line 1: name has no value; write one or remove the key"},
		{"name: ''\n", "line 1: name has no value; write one or remove the key"},
		{"name: ~\n", "line 1: name has no value; write one or remove the key"},
		{"name: a\nip: [10.0.0.1]\n", "line 2: ip is a list; write one word"},
		{"name: a\nitems: {size: x}\n", "line 2: item 1: size is not a whole number from 0 to 16777215 (0xffffff); write one, without quotes"},
		{"name: a\n---\n{\n", "line 3: not YAML: did not find expected node content; mend it on this line or the next"},
		{"name: [a]\n", "line 1: name is a list; write one word"},
		{"name: a\nfile: run/s\n", `line 2: file "run/s" is a relative path; write a path that begins with /`},
		{"name: a\nmemory: 0KiB\n", `line 2: memory "0KiB" is not a size; write one such as 64MiB (KiB, MiB or GiB), or more`},
		{"name: a\nmemory: 1kiB\n", `line 2: memory "1kiB" is not a size; write one such as 64MiB (KiB, MiB or GiB), or more`},
		{"name: a\nmemory: 12345678KiB\n", `line 2: memory "12345678KiB" is not a size; write one such as 64MiB (KiB, MiB or GiB), or more`},
		{"name: a\nmemory: [1]\n", "line 2: memory is a list; write one word"},
		{"name: a\nsize: -1\n", "line 2: size is not a whole number from 0 to 16777215 (0xffffff); write one, without quotes"},
		{"name: a\nsize: 16777216\n", "line 2: size is not a whole number from 0 to 16777215 (0xffffff); write one, without quotes"},
		{"name: a\nsize: 1.5\n", "line 2: size is not a whole number from 0 to 16777215 (0xffffff); write one, without quotes"},
		{"name: a\nsize: '1'\n", "line 2: size is not a whole number from 0 to 16777215 (0xffffff); write one, without quotes"},
		{"name: a\nsize: 99999999999999999999999\n", "line 2: size is not a whole number from 0 to 16777215 (0xffffff); write one, without quotes"},
		{"name: a\nip: 10.0.0\n", `line 2: ip "10.0.0" is not an IP address; write one such as 10.77.0.2 or fd00::2`},
		{"name: a\nip: '::ffff:10.0.0.1'\n", "line 2: ip ::ffff:10.0.0.1 is an IPv4 address written as IPv6; write 10.0.0.1"},
		{"name: a\nip: fe80::1%eth0\n", `line 2: ip "fe80::1%eth0" has a zone; write a global or unique local address`},
		{"name: a\nip: \"::ffff:10.0.0.1%a\\nb\"\n", `line 2: ip "::ffff:10.0.0.1%a\nb" has a zone; write a global or unique local address`},
		{"name: a\nlisten: [10.0.0.1:80]\n", "line 2: listen is a list; write one word"},
		{"name: a\nlisten: 10.0.0.1\n", `line 2: listen "10.0.0.1" is not an address with a port; write one such as 10.0.0.1:80`},
		{"name: a\nlisten: 10.0.0.1:0\n", `line 2: listen "10.0.0.1:0" is not an address with a port; write one such as 10.0.0.1:80`},
		{"name: a\nlisten: 10.0.0.1:080\n", "line 2: listen has a leading zero; write it in decimal without one"},
		{"name: " + strings.Repeat("a", 1025), "line 1: name is 1025 bytes long; write 1024 at most"},
		{"? " + strings.Repeat("k", 2000) + "\n: 1\n", `line 1: key "` + strings.Repeat("k", 80) + `" is unknown here; the known keys are name, file, size, memory, ip, listen, items`},
		{"name: *" + strings.Repeat("a", 2000), "line 1: not YAML: unknown anchor '" + strings.Repeat("a", 64) + "; mend it on this line or the next"},
		{"name: &a b\nip: *a\n", "line 1: anchors and aliases are not supported here; write the value itself"},
		{"name: a\nitems:\n  - {size: 1}\n  - {size: x}\n", "line 4: item 2: size is not a whole number from 0 to 16777215 (0xffffff); write one, without quotes"},
		{"name: a\nitems:\n  - {}\n", "line 3: item 1 has no size; add size: N"},
		{"name: a\nitems:\n  - {size: 1, sise: 2}\n", `line 3: item 1: key "sise" is unknown here; the known keys are size`},
		{"name: a\nitems:\n  - 4\n", "line 3: item 1 is a single word; write a mapping with the keys size"},
		{"name: {a\nsize: 1\n", "line 1: not YAML: did not find expected ',' or '}'; mend it on this line or the next"},
		{"name: a\n\tsize: 1\n", "line 2: not YAML: found a tab character that violates indentation; mend it on this line or the next"},
		{"name: \"a\n", "line 2: not YAML: found unexpected end of stream; mend it on this line or the next"},
		{"name: a\x01\n", "line 1: the file has the control character 0x1 here; remove it"},
		{"name: a\n# b\n# c\x00\n", "line 3: the file has the control character 0x0 here; remove it"},
		{"name: a\n" + strings.Repeat("# b\n", 5000) + "# \x7f", "line 5002: the file has the control character 0x7f here; remove it"},
		{"name: a\r\n\r\n# caf\xe9\r\n", "line 3: the file has the byte 0xe9 here, which is not UTF-8; save it as UTF-8"},
		{"name: a\n# \u0084\n", "line 2: the file has the control character 0x84 here; remove it"},
		{"name: a\n# \uffff\n", "line 2: the file has the control character 0xffff here; remove it"},
		{"name: a\n# \ufffe\n", "line 2: the file has the control character 0xfffe here; remove it"},
		{"\xff\xfen\x00", "line 1: the file has the byte 0xff here, which is not UTF-8; save it as UTF-8"},
		{"name: a\nsize: 0017\n", "line 2: size has a leading zero; write it in decimal without one, or in hexadecimal with 0x"},
		{"name: a\nsize: 08\n", "line 2: size has a leading zero; write it in decimal without one, or in hexadecimal with 0x"},
		{"name: a\nsize: 00\n", "line 2: size has a leading zero; write it in decimal without one, or in hexadecimal with 0x"},
		{"name: a\nsize: 0_17\n", "line 2: size has a leading zero; write it in decimal without one, or in hexadecimal with 0x"},
		{"name: a\nsize: 0o17\n", "line 2: size has a leading zero; write it in decimal without one, or in hexadecimal with 0x"},
		{"name: a\nsize: 0b1\n", "line 2: size has a leading zero; write it in decimal without one, or in hexadecimal with 0x"},
		{"name: a\nsize: '0017'\n", "line 2: size is not a whole number from 0 to 16777215 (0xffffff); write one, without quotes"},
		{"name: a\nsize: 0.5\n", "line 2: size is not a whole number from 0 to 16777215 (0xffffff); write one, without quotes"},
	} {
		_, err := parse(c.text)
		if err == nil {
			t.Errorf("%q was taken", c.text)
		} else if err.Error() != c.want {
			t.Errorf("%q\n got  %v\n want %s", c.text, err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("name: a\nitems: [{size: 1}]\n")
	f.Add("{name: [")
	f.Fuzz(func(t *testing.T, text string) {
		_, err := parse(text)
		if err == nil {
			return
		}
		if Line(err) < 1 {
			t.Errorf("%q: no line in %v", text, err)
		}
		if strings.ContainsFunc(err.Error(), func(r rune) bool { return !unicode.IsPrint(r) }) || len(err.Error()) > 5*maxTextBytes {
			t.Errorf("%q: no sentence is %q", text, err)
		}
	})
}

// What was accepted before is what it was then: a number alone was octal, one with a unit decimal,
// and a key that has gone since means nothing.
func TestAStoredTextMayBeOfAnOlderRelease(t *testing.T) {
	const text = "list: [{n: 0017}]\nspare: 3\npart: 025%\n"
	var n uint64
	fields := func(v Value) error {
		return v.Fields(
			Field{Key: "list", Set: func(v Value) error {
				return v.Each("item", func(v Value) error {
					return v.Fields(Field{Key: "n", Set: Into(&n, func(v Value) (uint64, error) { return v.Uint(99) })})
				})
			}},
			Field{Key: "spare", Gone: "write part"},
			Field{Key: "part", Set: func(v Value) error { return v.Decimal("025%") }},
		)
	}
	v, err := ParseStored([]byte(text), "the file")
	if err == nil {
		err = fields(v)
	}
	if err != nil || n != 15 {
		t.Errorf("%d, %v", n, err)
	}
	for _, c := range []struct{ text, want string }{
		{text, "line 1: item 1: n has a leading zero; write it in decimal without one, or in hexadecimal with 0x"},
		{"part: 025%\n", "line 1: part has a leading zero; write it in decimal without one"},
		{"spare: 3\n", `line 1: key "spare" is no longer known; write part`},
	} {
		v, err := Parse([]byte(c.text), "the file")
		if err == nil {
			err = fields(v)
		}
		if err == nil || err.Error() != c.want {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}
