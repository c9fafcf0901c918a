package main

import (
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rocast/rocast/ctl/api"
)

// policyFlag lets a command set policy keys: --policy nak=lower,repair=off.
func policyFlag(cmd *cobra.Command, keys *api.PolicyKeys) {
	cmd.Flags().Var(&policyValue{keys: keys}, "policy", "`KEY=VALUE,...`, the policy keys of a group file, for the groups that are made (docs/reference.md)")
	completeFlag(cmd, "policy", words(slices.Sorted(maps.Keys(maps.Collect(jsonFields(keys))))...))
}

// policyValue is what --policy has set.
type policyValue struct {
	keys *api.PolicyKeys
	text []string
}

func (p *policyValue) Type() string   { return "string" }
func (p *policyValue) String() string { return strings.Join(p.text, ",") }

func (p *policyValue) Set(text string) error {
	fields := maps.Collect(jsonFields(p.keys))
	for _, pair := range strings.Split(text, ",") {
		key, value, ok := strings.Cut(pair, "=")
		field, known := fields[key]
		switch {
		case !ok:
			return fmt.Errorf("%q is not KEY=VALUE; write one such as repair=off", pair)
		case !known:
			return fmt.Errorf("%s is no key of the policy that a service may have; docs/reference.md lists them", key)
		}
		var err error
		switch field.Kind() {
		case reflect.Bool:
			var b bool
			b, err = strconv.ParseBool(value)
			field.SetBool(b)
		case reflect.Int:
			var n uint64
			n, err = api.Number(value, 31)
			field.SetInt(int64(n))
		default:
			field.SetString(value)
		}
		if err != nil {
			return fmt.Errorf("%s is %q; docs/reference.md has its values", key, value)
		}
		p.text = append(p.text, pair)
	}
	return nil
}

// jsonFields yields the fields of what v points to by their names in JSON.
func jsonFields(v any) iter.Seq2[string, reflect.Value] {
	return func(yield func(string, reflect.Value) bool) {
		s := reflect.ValueOf(v).Elem()
		for i := range s.NumField() {
			if name, _, _ := strings.Cut(s.Type().Field(i).Tag.Get("json"), ","); !yield(name, s.Field(i)) {
				return
			}
		}
	}
}
