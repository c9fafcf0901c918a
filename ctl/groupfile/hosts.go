package groupfile

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/rocast/rocast/ctl/yamldoc"
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
