package neighbour

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/rocast/rocast/ctl/api"
)

// maxAnswerBytes is more than the tree of the largest group needs.
const maxAnswerBytes = 64 << 20

// MostAtOnce bounds the requests to one box that are under way; others wait. After a restart the
// state of all groups is sent at the same time, and the box there serves only so many connections
// from one address.
const MostAtOnce = 64

// Client asks the APIs of the neighbours. Its methods may be called from any goroutine.
type Client struct {
	files Files
	boxes map[string]Config
	slots map[string]chan struct{} // by box: a token for each request that is under way
}

// NewClient returns a Client that identifies itself with the files.
func NewClient(files Files, boxes []Config) *Client {
	c := &Client{files: files, boxes: map[string]Config{}, slots: map[string]chan struct{}{}}
	for _, b := range boxes {
		c.boxes[b.Name], c.slots[b.Name] = b, make(chan struct{}, MostAtOnce)
	}
	return c
}

// PutBranch asks a box to carry a group to the members behind it.
func (c *Client) PutBranch(ctx context.Context, box, group string, b api.Branch) (answer api.BranchAnswer, err error) {
	body, _ := json.Marshal(b) // there is JSON of every branch
	return answer, c.do(ctx, box, http.MethodPut, branchPath(group), body, &answer)
}

// DeleteBranch withdraws a group. version is that of the request: see api.Branch.
func (c *Client) DeleteBranch(ctx context.Context, box, group string, version uint64) error {
	var removed api.Removed
	return c.do(ctx, box, http.MethodDelete, fmt.Sprintf("%s?version=%d", branchPath(group), version), nil, &removed)
}

// Tree asks a box for its part of a group's tree and for those of the boxes behind it.
func (c *Client) Tree(ctx context.Context, box, group string) (tree api.Tree, err error) {
	return tree, c.do(ctx, box, http.MethodGet, branchPath(group), nil, &tree)
}

// NotifyUpper tells the box that asked this one for a branch that the branch has changed.
func (c *Client) NotifyUpper(ctx context.Context, box, group string) error {
	var told api.Told
	return c.do(ctx, box, http.MethodPost, branchPath(group), nil, &told)
}

// AskEdge asks a box for the mappings of what it sends once for several boxes, of which this is
// one.
func (c *Client) AskEdge(ctx context.Context, box string, q api.EdgeQuestion) (answer api.EdgeAnswer, err error) {
	body, _ := json.Marshal(q) // there is JSON of every question
	return answer, c.do(ctx, box, http.MethodPost, api.EdgePath, body, &answer)
}

func branchPath(group string) string { return api.BranchesPath + "/" + url.PathEscape(group) }

// do sends a request over a connection of its own and decodes the answer into the parameter into.
// Its error is a sentence that names the box.
func (c *Client) do(ctx context.Context, box, method, path string, body []byte, into any) error {
	b, known := c.boxes[box]
	if !known {
		return fmt.Errorf("box %s is not a neighbour; add it to neighbours: in the config", box)
	}
	select {
	case c.slots[box] <- struct{}{}:
		defer func() { <-c.slots[box] }()
	case <-ctx.Done():
		return c.unanswered(b, ctx.Err())
	}
	settings, err := c.files.client(box)
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: settings, DisableKeepAlives: true}
	request, err := http.NewRequestWithContext(ctx, method, b.URL+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("box %s: %w", box, err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return c.unanswered(b, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	if err != nil {
		return c.unanswered(b, err)
	}
	if response.StatusCode/100 != 2 {
		return refusal(b, response.StatusCode, text)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("box %s answers in a way that this box does not understand (%w); run the same version of rocast "+
			"on both", box, err)
	}
	return nil
}

// Refusal is the answer of a box that was asked and refused.
type Refusal struct {
	Box   string
	Cause *api.Error
}

func (r *Refusal) Error() string { return fmt.Sprintf("box %s refuses: %v", r.Box, r.Cause) }

// Unwrap returns the box's error.
func (r *Refusal) Unwrap() error { return r.Cause }

func refusal(b Config, status int, text []byte) error {
	var body api.ErrorBody
	if err := json.Unmarshal(text, &body); err != nil || body.Error == nil {
		return fmt.Errorf("the program at %s answers %d without a reason; is it rocastd of box %s?", b.URL, status, b.Name)
	}
	if strings.HasPrefix(body.Error.Message, "there is no "+api.BranchesPath) {
		return fmt.Errorf("box %s runs a version of rocast that knows no branches; run the same version on both boxes", b.Name)
	}
	return &Refusal{Box: b.Name, Cause: body.Error}
}

// unanswered returns the error of a request that has no answer.
func (c *Client) unanswered(b Config, err error) error {
	var verification *tls.CertificateVerificationError
	if errors.As(err, &verification) {
		presented := "no name"
		if certs := verification.UnverifiedCertificates; len(certs) > 0 && len(certs[0].DNSNames) > 0 {
			presented = certs[0].DNSNames[0]
		}
		var host x509.HostnameError
		if errors.As(err, &host) {
			return fmt.Errorf("the box at %s has a certificate for %s and not for %s; correct the url of the neighbour %s, or the "+
				"certificate there", b.URL, presented, b.Name, b.Name)
		}
		return fmt.Errorf("the certificate of box %s at %s is not valid with the CA %s (%v); correct one of them",
			b.Name, b.URL, c.files.CA, verification.Err)
	}
	var operation *net.OpError
	// A TLS alert has no exported type; those about certificates say so.
	if errors.As(err, &operation) && operation.Op == "remote error" && strings.Contains(operation.Err.Error(), "certificate") {
		return fmt.Errorf("box %s at %s does not accept the certificate %s (%v); correct it, or the ca there",
			b.Name, b.URL, c.files.Cert, operation.Err)
	}
	if errors.As(err, &operation) && operation.Op == "dial" {
		err = operation.Err
	}
	return fmt.Errorf("box %s does not answer at %s (%w); is rocastd running there, with api: in its config?", b.Name, b.URL, err)
}
