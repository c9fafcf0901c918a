package feedback

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// Group files, the API and people read and write policies by their keys.
func TestKeysAreReadAsTheyAreWritten(t *testing.T) {
	for name, values := range map[string]map[string]Policy{
		"ack":                {"all": {}, "quorum 1": {Ack: 1}, "quorum 65535": {Ack: 65535}},
		"nak":                {"hold": {}, "lower": {Nak: NakLower}},
		"on-fatal":           {"fail": {}, "evict": {OnFatal: FatalEvict}},
		"silent-after":       {"0": {}, "10ms": {SilentAfter: 10 * time.Millisecond}, "1h0m0s": {SilentAfter: time.Hour}},
		"evict":              {"false": {}, "true": {Evict: true}},
		"cnp":                {"filter": {}, "all": {CNP: CNPAll}},
		"cnp-interval":       {"0": {}, "1µs": {CNPInterval: time.Microsecond}, "100ms": {CNPInterval: 100 * time.Millisecond}},
		"credits":            {"unlimited": {}, "merge": {Credits: CreditsMerge}},
		"source-switch":      {"guard": {}, "force": {Switch: SwitchForce}},
		"repair":             {"off": {}, "local": {Repair: RepairLocal}},
		"repair-window":      {"1": {RepairWindow: 1}, "65536": {RepairWindow: 65536}},
		"repair-bytes":       {"0": {}, "4096": {RepairBytes: 4096}},
		"repair-attempts":    {"1": {RepairAttempts: 1}, "100": {RepairAttempts: 100}},
		"repair-timer-floor": {"20µs": {RepairTimerFloor: 20 * time.Microsecond}, "1s": {RepairTimerFloor: time.Second}},
		"repair-timer-cap":   {"20µs": {RepairTimerCap: 20 * time.Microsecond}, "1s": {RepairTimerCap: time.Second}},
	} {
		k := keyOf(name)
		for text, want := range values {
			for before, got := range values {
				if err := k.Set(&got, text); err != nil || got != want {
					t.Errorf("%s: %s is %+v, %v, after %s", name, text, got, err, before)
				}
			}
			if back := k.Text(want); back != text {
				t.Errorf("%s: %q, want %q", name, back, text)
			}
		}
	}
}

// What a key refuses is a sentence that names the value and the mend.
func TestValuesThatNoKeyHas(t *testing.T) {
	for name, values := range map[string]map[string]string{
		"ack": {
			"": "", "quorum": "", "quorum 0": "", "quorum -1": "", "quorum 65536": "", "quorum 2 ": "", "2": "",
			"quorum all": `"quorum all" is neither all nor quorum N with N from 1`,
		},
		"nak":   {"keep": `"keep" is not one of hold, lower`, "": "", "Hold": ""},
		"evict": {"yes": `"yes" is neither true nor false`, "": ""},
		"silent-after": {
			"9ms": `"9ms" is not a time from 10ms to 1h; write one such as 200ms, or 0 for never`, "61m": "", "200": "", "-1s": "",
		},
		"cnp-interval":       {"999ns": `"999ns" is not a time from 1us to 100ms; write one such as 20us, or 0 for no limit`, "101ms": ""},
		"repair-timer-floor": {"0": `"0" is not a time from 20us to 1s; write one such as 400us`, "19us": "", "1001ms": ""},
		"repair-window":      {"0": `"0" is not a number from 1 to 65536`, "65537": "", "many": ""},
		"repair-attempts":    {"0": "", "101": `"101" is not a number from 1 to 100`},
	} {
		for text, want := range values {
			var p Policy
			err := keyOf(name).Set(&p, text)
			if err == nil || want != "" && err.Error() != want {
				t.Errorf("%s: %q is %+v, %v", name, text, p, err)
			}
		}
	}
}

// Every field of a policy has a key. The keys that depend on repair follow it.
func TestEveryPolicyHasAKey(t *testing.T) {
	var p Policy
	fields, v := map[any]string{}, reflect.ValueOf(&p).Elem()
	for i := range v.NumField() {
		fields[v.Field(i).Addr().Interface()] = v.Type().Field(i).Name
	}
	for _, k := range Keys {
		name := fields[k.Of(&p)]
		delete(fields, k.Of(&p))
		if name == "" || k.Repairs != (strings.HasPrefix(k.Name, "repair-") || k.Name == KeyOnSlow) || k.Bytes != strings.HasSuffix(k.Name, "-bytes") || k.Meaning == "" || k.Values == "" || k.Default == "" {
			t.Errorf("%s is the key of %q: %+v", k.Name, name, k)
		}
	}
	if len(fields) > 0 {
		t.Errorf("no key for %v", fields)
	}
}
