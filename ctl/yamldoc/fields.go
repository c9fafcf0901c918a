package yamldoc

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Field is a key that a mapping may have.
type Field struct {
	Key string
	Set func(Value) error
	// Needed tells the user what to add when the key is absent. If Needed is "", the key is
	// optional.
	Needed string
	// Gone tells the user what to do instead of writing a key that was known once. Set is not
	// called. A stored text may have the key.
	Gone string
}

// Into returns a Set function that stores the result of parse in dst.
func Into[T any](dst *T, parse func(Value) (T, error)) func(Value) error {
	return func(v Value) (err error) {
		*dst, err = parse(v)
		return err
	}
}

// Fields reads a mapping whose keys must be among fields. It reads the keys in the document's
// order.
func (v Value) Fields(fields ...Field) error {
	if v.node.Kind != yaml.MappingNode {
		return v.Errorf("is %s; write a mapping with the keys %s", kind(v.node), keys(fields))
	}
	lines := map[string]int{}
	for i := 0; i < len(v.node.Content); i += 2 {
		key, value := v.node.Content[i], v.node.Content[i+1]
		at := slices.IndexFunc(fields, func(f Field) bool { return key.Kind == yaml.ScalarNode && f.Key == key.Value })
		if at < 0 {
			return Errorf(key.Line, "%skey %.*q is unknown here; the known keys are %s",
				v.inside(), maxQuotedRunes, key.Value, keys(fields))
		}
		if gone := fields[at].Gone; gone != "" && v.stored {
			continue
		} else if gone != "" {
			return Errorf(key.Line, "%skey %q is no longer known; %s", v.inside(), key.Value, gone)
		}
		if first, twice := lines[key.Value]; twice {
			return Errorf(key.Line, "%skey %q was already given on line %d; keep one of them",
				v.inside(), key.Value, first)
		}
		lines[key.Value] = key.Line
		if err := fields[at].Set(v.child(key.Value, value)); err != nil {
			return err
		}
	}
	for _, f := range fields {
		if _, given := lines[f.Key]; f.Needed != "" && !given {
			return v.Errorf("has no %s; add %s", f.Key, f.Needed)
		}
	}
	return nil
}

// Each reads a list. Errors call each item by noun and number, starting at 1: "member 2".
func (v Value) Each(noun string, read func(Value) error) error {
	if v.node.Kind != yaml.SequenceNode {
		return v.Errorf("is %s; write a list", kind(v.node))
	}
	for i, node := range v.node.Content {
		if err := read(v.item(noun, i, node)); err != nil {
			return err
		}
	}
	return nil
}

// EachOrOne works like Each, but also accepts a single item without a list.
func (v Value) EachOrOne(noun string, read func(Value) error) error {
	if v.node.Kind != yaml.SequenceNode {
		return read(v.item(noun, 0, v.node))
	}
	return v.Each(noun, read)
}

func (v Value) item(noun string, i int, node *yaml.Node) Value {
	return Value{node: node, parent: v.parent, name: fmt.Sprint(noun, " ", i+1), stored: v.stored}
}

// child returns a key's value with its name. The name of the document is left out: a top-level key
// is just "psn".
func (v Value) child(key string, node *yaml.Node) Value {
	return Value{node: node, parent: strings.TrimSuffix(v.inside(), ": "), name: key, stored: v.stored}
}

// inside returns the prefix for a sentence about something inside v.
func (v Value) inside() string {
	if v.whole {
		return ""
	}
	return v.String() + ": "
}

func keys(fields []Field) string {
	var names []string
	for _, f := range fields {
		if f.Gone == "" {
			names = append(names, f.Key)
		}
	}
	return strings.Join(names, ", ")
}
