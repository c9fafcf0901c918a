package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rocast/rocast/ctl/api"
)

// secrets are R_Keys and VAs of groups, each with what stands for it.
type secrets map[uint64]string

const (
	forRKey = "<r_key>"
	forVA   = "<va>"
)

// of adds those of a group.
func (s secrets) of(g *api.Group) {
	s.add(g.Memory)
	for i := range g.Members {
		s.add(g.Members[i].Regions)
	}
}

func (s secrets) add(regions []api.Region) {
	for _, r := range regions {
		s[uint64(r.VA)] = forVA
		if r.RKey != nil {
			s[uint64(*r.RKey)] = forRKey
		}
	}
}

var (
	numbers     = regexp.MustCompile(`\b(0[xX])?[0-9a-fA-F]+\b`)
	privateKeys = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`)
	credentials = regexp.MustCompile(`://[^/\s]+@`) // a password may have an @ and quotation marks
)

// leastDecimal is the smallest secret that is recognized in decimal: smaller numbers are counts in
// most places. leastHex is the least number of digits with which a secret is recognized in
// hexadecimal without 0x.
const (
	leastDecimal = 10000
	leastHex     = 8
)

// hide replaces the secrets in a text.
func (s secrets) hide(text string) string {
	text = privateKeys.ReplaceAllString(text, "<private key>")
	text = credentials.ReplaceAllString(text, "://<credentials>@")
	return numbers.ReplaceAllStringFunc(text, func(word string) string {
		if stand := s.standIn(word); stand != "" {
			return stand
		}
		return word
	})
}

// standIn returns what stands for a word that is a secret.
func (s secrets) standIn(word string) string {
	digits, prefixed := strings.CutPrefix(strings.ToLower(word), "0x")
	if n, err := strconv.ParseUint(digits, 16, 64); err == nil && (prefixed || len(digits) >= leastHex) && s[n] != "" {
		return s[n]
	}
	if n, err := strconv.ParseUint(word, 10, 64); err == nil && n >= leastDecimal {
		return s[n]
	}
	return ""
}

// withoutSecrets replaces the values of the keys rkey and va in a JSON document.
func withoutSecrets(tree any) any {
	switch tree := tree.(type) {
	case map[string]any:
		for key, value := range tree {
			switch key {
			case "rkey":
				tree[key] = forRKey
			case "va":
				tree[key] = forVA
			default:
				tree[key] = withoutSecrets(value)
			}
		}
	case []any:
		for i := range tree {
			tree[i] = withoutSecrets(tree[i])
		}
	}
	return tree
}

// pack writes the files as tar.gz, without secrets.
func (b *bundle) pack(out io.Writer) error {
	zipped := gzip.NewWriter(out)
	archive := tar.NewWriter(zipped)
	for _, f := range b.files {
		text := b.secrets.hide(f.text)
		header := &tar.Header{Name: "rocast-bundle/" + f.name, Mode: 0o600, Size: int64(len(text)), ModTime: b.began.Truncate(time.Second), Format: tar.FormatPAX}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := io.WriteString(archive, text); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), zipped.Close())
}
