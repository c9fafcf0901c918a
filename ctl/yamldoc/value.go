package yamldoc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// The input and the errors about it are bounded. An error may quote a value and must still be a
// readable sentence.
const (
	// maxTextBytes bounds a scalar. It is more than any name, word or path needs.
	maxTextBytes = 1024
	// maxQuotedRunes bounds a quotation of text of any length; the rest is left out.
	maxQuotedRunes = 80
	// maxSeparators bounds the number of values in a document. Each value needs about 200 bytes of
	// memory while it is read, so a megabyte of [1,1,...] would need a hundred megabytes. The
	// largest group, with 1024 members of eight regions each, has fewer separators.
	maxSeparators = 80_000
)

// Value is one value of a document.
type Value struct {
	node *yaml.Node
	// The position of the value for messages: parent "member 2", name "psn".
	parent, name string
	whole        bool // the value is the document itself
	stored       bool // see ParseStored
}

// ParseStored is Parse for a text that an older release may have accepted and stored: a number with
// a leading zero is what it was then, octal where it stands alone.
func ParseStored(text []byte, what string) (Value, error) {
	v, err := Parse(text, what)
	v.stored = true
	return v, err
}

// Parse reads text, which must contain one document. Errors call the document what: "a group file".
func Parse(text []byte, what string) (Value, error) {
	if err := refuseBytes(text, what); err != nil {
		return Value{}, err
	}
	if countSeparators(text) > maxSeparators {
		return Value{}, Errorf(1, "%s holds more than %d values; split it", what, maxSeparators)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, second yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return Value{}, Errorf(1, "%s is empty; write its keys", what)
	} else if err != nil {
		return Value{}, syntaxError(err)
	}
	if err := decoder.Decode(&second); err == nil {
		return Value{}, Errorf(second.Line, "a second document starts here, and %s holds only one; remove it", what)
	} else if !errors.Is(err, io.EOF) {
		return Value{}, syntaxError(err)
	}
	if err := refuseAnchors(&document); err != nil {
		return Value{}, err
	}
	return Value{node: document.Content[0], name: what, whole: true}, nil
}

// refuseBytes refuses what YAML does not allow in a text: the YAML parser does not say where it is.
func refuseBytes(text []byte, what string) error {
	line := 1
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == '\n':
			line++
		case r == utf8.RuneError && size == 1:
			return Errorf(line, "%s has the byte %#x here, which is not UTF-8; save it as UTF-8", what, text[0])
		case r < ' ' && r != '\t' && r != '\r', r >= 0x7f && r < 0xa0 && r != '\u0085', r == '\ufffe', r == '\uffff':
			return Errorf(line, "%s has the control character %#x here; remove it", what, r)
		}
		text = text[size:]
	}
	return nil
}

// separators are the characters that can begin a value. Without one of them no further value
// begins, and one of them begins at most two values.
const separators = ",:[{-?"

func countSeparators(text []byte) (n int) {
	for _, c := range text {
		if strings.IndexByte(separators, c) >= 0 {
			n++
		}
	}
	return n
}

// refuseAnchors refuses anchors and aliases, because with them a short text can stand for a very
// long one.
func refuseAnchors(node *yaml.Node) error {
	if node.Kind == yaml.AliasNode || node.Anchor != "" {
		return Errorf(node.Line, "anchors and aliases are not supported here; write the value itself")
	}
	for _, child := range node.Content {
		if err := refuseAnchors(child); err != nil {
			return err
		}
	}
	return nil
}

// Line returns the line where the value starts.
func (v Value) Line() int { return v.node.Line }

// String returns the position of the value: "member 2: psn".
func (v Value) String() string {
	if v.parent == "" {
		return v.name
	}
	return v.parent + ": " + v.name
}

// Errorf returns an error about the value: its position, a space and the formatted text.
func (v Value) Errorf(format string, args ...any) error {
	return Errorf(v.Line(), "%v %s", v, fmt.Sprintf(format, args...))
}

// Wrap returns an error about the value. err must be a complete sentence.
func (v Value) Wrap(err error) error {
	if v.parent == "" {
		return Errorf(v.Line(), "%v", err)
	}
	return Errorf(v.Line(), "%s: %v", v.parent, err)
}

// IsEmpty reports whether the value is absent behind its key, or an empty text.
func (v Value) IsEmpty() bool {
	return v.node.Kind == yaml.ScalarNode && (v.node.Tag == "!!null" || v.node.Value == "")
}

// Text returns a scalar as written in the document.
func (v Value) Text() (string, error) {
	if v.node.Kind != yaml.ScalarNode {
		return "", v.Errorf("is %s; write one word", kind(v.node))
	}
	if v.IsEmpty() {
		return "", v.Errorf("has no value; write one or remove the key")
	}
	if len(v.node.Value) > maxTextBytes {
		return "", v.Errorf("is %d bytes long; write %d at most", len(v.node.Value), maxTextBytes)
	}
	return v.node.Value, nil
}

// Path returns the absolute path of a file or a directory.
func (v Value) Path() (string, error) {
	text, err := v.Text()
	if err == nil && !path.IsAbs(text) {
		err = v.Errorf("%q is a relative path; write a path that begins with /", text)
	}
	return text, err
}

// leadingZero is the beginning of a number that is octal to some readers and decimal to others, or
// has another base than 10 and 16.
var leadingZero = regexp.MustCompile(`^0[0-9_obOB]`)

// decimalZero is a leading zero of a number that is always read as decimal.
var decimalZero = regexp.MustCompile(`^0[0-9]`)

// Decimal refuses a text that begins with a number with a leading zero: it is a part of the value,
// such as 25% or 200ms.
func (v Value) Decimal(text string) error { return v.refuseZero(text, decimalZero, "") }

func (v Value) refuseZero(text string, zero *regexp.Regexp, otherwise string) error {
	if v.stored || !zero.MatchString(text) {
		return nil
	}
	return v.Errorf("has a leading zero; write it in decimal without one%s", otherwise)
}

// Uint returns a whole number up to limit, written in decimal or with the prefix 0x.
func (v Value) Uint(limit uint64) (uint64, error) { return v.UintFrom(0, limit) }

// UintFrom returns a whole number from least to limit.
func (v Value) UintFrom(least, limit uint64) (uint64, error) {
	// YAML takes 08 for a float.
	if tag := v.node.Tag; v.node.Kind == yaml.ScalarNode && (tag == "!!int" || tag == "!!float") {
		if err := v.refuseZero(v.node.Value, leadingZero, ", or in hexadecimal with 0x"); err != nil {
			return 0, err
		}
		if n, err := strconv.ParseUint(v.node.Value, 0, 64); err == nil && n >= least && n <= limit {
			return n, nil
		}
	}
	return 0, v.Errorf("is not a whole number from %d to %d (%#x); write one, without quotes", least, limit, limit)
}

var sizeForm = regexp.MustCompile(`^([1-9][0-9]{0,6})(KiB|MiB|GiB)$`)

var sizeUnits = map[string]uint64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

// Size returns a number of bytes, in words such as 64MiB. The error about another form says what
// else may be written.
func (v Value) Size(otherwise string) (uint64, error) {
	text, err := v.Text()
	if err != nil {
		return 0, err
	}
	parts := sizeForm.FindStringSubmatch(text)
	if parts == nil {
		return 0, v.Errorf("%q is not a size; write one such as 64MiB (KiB, MiB or GiB)%s", text, otherwise)
	}
	n, err := strconv.ParseUint(parts[1], 10, 64)
	return n * sizeUnits[parts[2]], err
}

// Bool returns a value that is true or false.
func (v Value) Bool() (bool, error) {
	if v.node.Kind == yaml.ScalarNode && v.node.Tag == "!!bool" {
		if b, err := strconv.ParseBool(v.node.Value); err == nil {
			return b, nil
		}
	}
	return false, v.Errorf("is neither true nor false; write one of them, without quotes")
}

// Addr returns an IP address without a zone. An IPv4 address must be in its own form, not mapped
// into IPv6.
func (v Value) Addr() (netip.Addr, error) {
	text, err := v.Text()
	if err != nil {
		return netip.Addr{}, err
	}
	addr, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		return netip.Addr{}, v.Errorf("%q is not an IP address; write one such as 10.77.0.2 or fd00::2", text)
	case addr.Zone() != "": // a zone may be any text
		return netip.Addr{}, v.Errorf("%q has a zone; write a global or unique local address", addr)
	case addr.Is4In6():
		return netip.Addr{}, v.Errorf("%v is an IPv4 address written as IPv6; write %v", addr, addr.Unmap())
	}
	return addr, nil
}

// AddrPort returns an IP address with a port that is not 0. The error ends with the example.
func (v Value) AddrPort(example string) (at netip.AddrPort, err error) {
	text, err := v.Text()
	if err == nil {
		err = v.Decimal(text[strings.LastIndexByte(text, ':')+1:])
	}
	if err != nil {
		return at, err
	}
	if at, err = netip.ParseAddrPort(text); err != nil || at.Port() == 0 {
		return netip.AddrPort{}, v.Errorf("%q is not an address with a port; write one such as %s", text, example)
	}
	return at, nil
}

func kind(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	return "a single word"
}
