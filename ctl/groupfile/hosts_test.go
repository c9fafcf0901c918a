package groupfile

import (
	"testing"

	"github.com/rocast/rocast/feedback"
)

// What programs say of a policy is read as the keys of a group file are, and errors have no line.
func TestAHostsPolicyIsRead(t *testing.T) {
	const form = " is not KEY=VALUE; write one such as repair=off,nak=lower, with the keys of a group file"
	for text, want := range map[string]string{
		"": "", "repair=off,ack=quorum 2": "", "silent-after=0.5s,evict=true": "", "repair-bytes=4KiB": "",
		"repair": `policy "repair"` + form, "repair=off,": `policy ""` + form, "nak={a}": `policy "nak={a}"` + form, "nak:lower=1": `policy "nak:lower=1"` + form,
		"nak=lowe":                `policy nak=lowe: nak "lowe" is not one of hold, lower`,
		"nak=hold,nak=lower":      `policy nak=hold,nak=lower: key "nak" was already given on line 1; keep one of them`,
		"silent-after=010ms":      "policy silent-after=010ms: silent-after has a leading zero; write it in decimal without one",
		"cnp=all,cnp-interval=1s": `policy cnp=all,cnp-interval=1s: cnp-interval "1s" is not a time from 1us to 100ms; write one such as 20us, or 0 for no limit`,
		"evict=true": "policy evict=true: evict has no effect without silent-after, which says when a receiver counts as silent; add silent-after: 200ms, " +
			"or remove evict",
		"repair-bytes=1KiB": "policy repair-bytes=1KiB: repair-bytes is 1KiB, and one packet of path MTU 1024 takes 4KiB; write 4KiB or more",
	} {
		got := ""
		p, err := ReadHostPolicy(text, 1024)
		if err != nil {
			got = err.Error()
		}
		if got != want || (err == nil && text != "") != (len(p) > 0) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestHostsSayTheSame(t *testing.T) {
	policy := func(text string) HostPolicy {
		p, err := ReadHostPolicy(text, 1024)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []struct {
		one, other string
		want       bool
	}{
		{"", "", true}, {"", "repair=off", true}, {"repair=off", "", true}, {"repair=off", "repair=off", true}, {"repair=off", "nak=lower", false},
		{"nak=lower,repair=off", "repair=off,nak=lower", true}, {"nak=lower,repair=local", "nak=lower", true}, {"nak=lower,repair=off", "nak=lower", false},
		{"ack=quorum 2", "ack=quorum 2,on-fatal=evict", true}, {"ack=quorum 2", "ack=quorum 2,on-fatal=fail", false},
		{"repair-bytes=64KiB", "nak=hold", false},
	} {
		if got := policy(c.one).Same(policy(c.other)); got != c.want {
			t.Errorf("%s and %s: %v", c.one, c.other, got)
		}
	}
	running := feedback.Policy{Nak: feedback.NakLower, Repair: feedback.RepairLocal, RepairWindow: 64}
	for text, want := range map[string]bool{
		"": true, "nak=lower": true, "repair-window=64,nak=lower": true, "nak=hold": false, "repair=off": false, "nak=lower,repair-window=65": false,
	} {
		if got := policy(text).IsOf(running); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// Each key stands behind a comma, as in a group file between braces.
func TestTheFieldsOfAHostsPolicy(t *testing.T) {
	p, err := ReadHostPolicy("ack=quorum 2,evict=false", 1024)
	if got := p.Fields(); err != nil || got != `, "ack": quorum 2, "evict": false` {
		t.Errorf("%s, %v", got, err)
	}
}

// Nobody's secret is the sum of no bytes.
func TestNoSecretIsNone(t *testing.T) {
	if none := SecretOf(""); none != (Secret{}) || none.String() != "" {
		t.Errorf("%v", none)
	}
	if a := SecretOf("a"); a.String() != "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb" {
		t.Errorf("%v", a)
	}
}
