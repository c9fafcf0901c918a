package groupfile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/feedback"
)

// Hosts says what programs on hosts may do with a group.
type Hosts uint8

const (
	HostsNothing Hosts = iota
	HostsJoin          // they may join it and leave it
	HostsEnd           // and end it, because hosts have made it
)

var hostsWords = [...]string{HostsNothing: "false", HostsJoin: "true", HostsEnd: "end"}

func (h Hosts) String() string { return hostsWords[h] }

func readHosts(v yamldoc.Value) (Hosts, error) {
	if text, err := v.Text(); err == nil && text == HostsEnd.String() {
		return HostsEnd, nil
	}
	join, err := v.Bool()
	switch {
	case err != nil:
		return HostsNothing, v.Errorf("is neither true nor false nor end; write one of them, without quotes")
	case join:
		return HostsJoin, nil
	}
	return HostsNothing, nil
}

// Secret is the SHA-256 of what a host has to show to join a group. The zero value: nothing.
type Secret [sha256.Size]byte

// SecretOf returns the Secret of what a host shows.
func SecretOf(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return sha256.Sum256([]byte(text))
}

// String returns the Secret in hex, or "" if there is none.
func (s Secret) String() string {
	if s == (Secret{}) {
		return ""
	}
	return hex.EncodeToString(s[:])
}

func readSecret(v yamldoc.Value) (s Secret, err error) {
	text, err := v.Text()
	if err == nil && text == "none" {
		return s, nil
	}
	if n, wrong := hex.Decode(s[:], []byte(text)[:min(len(text), 2*len(s))]); err == nil && (wrong != nil || 2*n != len(text) || n != len(s)) {
		err = v.Errorf("is not a SHA-256 in hex; printf %%s SECRET | sha256sum prints it")
	}
	return s, err
}

// HostPolicy is the part of a group's policy that a program on a host names: KEY=VALUE pairs with
// the keys of a group file. The zero value names nothing.
type HostPolicy []string

// policyPair has no character that means something in YAML.
var policyPair = regexp.MustCompile(`^([a-z-]+)=([A-Za-z0-9. ]+)$`)

// ReadHostPolicy reads a policy, for a group of this path MTU.
func ReadHostPolicy(text string, pathMTU int) (p HostPolicy, err error) {
	if text == "" {
		return nil, nil
	}
	p = strings.Split(text, ",")
	for _, pair := range p {
		if !policyPair.MatchString(pair) {
			return nil, fmt.Errorf("policy %q is not KEY=VALUE; write one such as repair=off,nak=lower, with the keys of a group file", pair)
		}
	}
	whole, err := p.whole(pathMTU)
	if err == nil && whole.Repair == feedback.RepairOff {
		err = unlined(refuseOff(0, needsRepair(&whole, 1))) // who sends is not known yet
	}
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", text, err)
	}
	return p, nil
}

// Fields returns the keys as they stand in a group file between braces, each behind a comma.
func (p HostPolicy) Fields() (text string) {
	for _, pair := range p {
		text += policyPair.ReplaceAllString(pair, `, "$1": $2`)
	}
	return text
}

// on sets the named keys in a policy.
func (p HostPolicy) on(policy *feedback.Policy) (lines map[string]int, err error) {
	if len(p) == 0 {
		return nil, nil
	}
	lines = map[string]int{}
	document, err := yamldoc.Parse([]byte("{"+p.Fields()[1:]+"}"), "the policy")
	if err == nil {
		err = document.Fields(PolicyFields(policy, lines)...)
	}
	return lines, unlined(err)
}

// unlined is an error without its line: the keys come from a program.
func unlined(err error) error {
	if e := (*yamldoc.Error)(nil); errors.As(err, &e) {
		return errors.New(e.Message)
	}
	return err
}

// whole returns the policy of a group file that has only these keys.
func (p HostPolicy) whole(pathMTU int) (policy feedback.Policy, err error) {
	policy.Repair = feedback.RepairLocal
	lines, err := p.on(&policy)
	if err == nil {
		err = unlined(CheckPolicy(&policy, lines, pathMTU))
	}
	return policy, err
}

// Same reports whether two hosts name the same policy, or one of them names none.
func (p HostPolicy) Same(o HostPolicy) bool {
	const largest = 4096 // the path MTU is that of the group, which is not known yet
	one, _ := p.whole(largest)
	other, _ := o.whole(largest) // both were read
	return len(p) == 0 || len(o) == 0 || one == other
}

// IsOf reports whether this policy has the values that the host names.
func (p HostPolicy) IsOf(policy feedback.Policy) bool {
	as := policy
	_, err := p.on(&as)
	return err == nil && as == policy
}
