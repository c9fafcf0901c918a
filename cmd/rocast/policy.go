package main

import (
	"fmt"
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
	completeFlag(cmd, "policy", words(slices.Sorted(maps.Keys(policyKeys(keys)))...))
}

// policyValue is what --policy has set.
type policyValue struct {
	keys *api.PolicyKeys
	text []string
}

func (p *policyValue) Type() string   { return "string" }
func (p *policyValue) String() string { return strings.Join(p.text, ",") }

func (p *policyValue) Set(text string) error {
	fields := policyKeys(p.keys)
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

// policyKeys returns the fields of keys by the name of their key.
func policyKeys(keys *api.PolicyKeys) map[string]reflect.Value {
	v, fields := reflect.ValueOf(keys).Elem(), map[string]reflect.Value{}
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		fields[name] = v.Field(i)
	}
	return fields
}
