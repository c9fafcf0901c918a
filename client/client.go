package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rocast/rocast/ctl/api"
)

const (
	// DefaultSocket is the path of the daemon's socket if its config names no other path.
	DefaultSocket = api.DefaultSocket

	maxAnswerBytes = 1 << 30
	answerWithin   = time.Minute // creating a group asks the kernel about every member
)

// Client asks one daemon. Its methods may be called from any goroutine. Every error is an *Error,
// unless the method says otherwise.
type Client struct {
	address string // as errors name it
	url     string // without the path
	remedy  string // what to look at when nothing answers
	http    *http.Client
	bodies  string // the Content-Type of requests; "": the daemon tells by what it asked for
}

// New returns a Client for the daemon's Unix socket.
func New(socket string) *Client {
	return Over(socket, func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	})
}

// NewTLS returns a Client for the TCP listener of a daemon: the key api of its config, at
// https://HOST:PORT. The settings have the program's certificate, whose first DNS name is among
// clients: there, the CA of the boxes in RootCAs, and the box's name as ServerName.
func NewTLS(url string, settings *tls.Config) *Client {
	c := newClient(&http.Transport{TLSClientConfig: settings})
	c.address, c.url, c.remedy = url, url, "is rocastd running there, with api: in its config, and do the certificates fit?"
	return c
}

// Over returns a Client that reaches the daemon's socket by dial. Errors name the socket.
func Over(socket string, dial func(context.Context) (net.Conn, error)) *Client {
	c := newClient(&http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }})
	c.address, c.url, c.remedy = socket, "http://rocastd", "is rocastd running, and is this its socket?"
	return c
}

func newClient(transport *http.Transport) *Client {
	transport.DisableKeepAlives = true
	return &Client{http: &http.Client{Transport: transport, Timeout: answerWithin}}
}

// CreateGroup creates the group that a file describes.
func (c *Client) CreateGroup(ctx context.Context, file []byte) (group api.Group, err error) {
	return group, c.do(ctx, http.MethodPost, api.GroupsPath, file, &group)
}

// UpdateGroup changes the members of a running group to those that a file describes.
func (c *Client) UpdateGroup(ctx context.Context, name string, file []byte) (group api.Group, err error) {
	return group, c.do(ctx, http.MethodPut, api.GroupsPath+"/"+url.PathEscape(name), file, &group)
}

// RemoveGroup removes a group.
func (c *Client) RemoveGroup(ctx context.Context, name string) (removed api.Removed, err error) {
	return removed, c.do(ctx, http.MethodDelete, api.GroupsPath+"/"+url.PathEscape(name), nil, &removed)
}

// Confirm says that a member's QP is ready. A group waits for the members with confirm: true in its
// file.
func (c *Client) Confirm(ctx context.Context, group string, ready Confirmation) (after Group, err error) {
	body, err := json.Marshal(ready)
	if err != nil {
		return after, api.Errorf(api.BadRequest, "%v", err)
	}
	return after, c.do(ctx, http.MethodPost, api.GroupsPath+"/"+url.PathEscape(group)+api.ReadyPath, body, &after)
}

// ChangeRegions lets regions of memory come to a running group and leave it. When it returns, the
// source may WRITE to the new ones, and WRITEs to those that left are refused.
func (c *Client) ChangeRegions(ctx context.Context, group string, change RegionChange) (after Group, err error) {
	return after, c.post(ctx, api.GroupsPath+"/"+url.PathEscape(group)+api.RegionsPath, change, &after)
}

// AddRegions lets many regions come to a group, in as many changes as they need. It returns how
// many have come, which are the first ones, also with an error. The memory of a group with so many
// regions is a table (memory: table in the group file).
func (c *Client) AddRegions(ctx context.Context, group string, regions iter.Seq[NewRegion]) (added int, err error) {
	const most = api.MaxGroupFileBytes - 1<<10 // the rest is for what is around the regions
	var change RegionChange
	var bytes int
	send := func() error {
		if len(change.Add) == 0 {
			return nil
		}
		if _, err := c.ChangeRegions(ctx, group, change); err != nil {
			return err
		}
		added += len(change.Add)
		change.Add, bytes = change.Add[:0], 0
		return nil
	}
	for r := range regions {
		text, err := json.Marshal(r)
		if err != nil {
			return added, api.Errorf(api.BadRequest, "%v", err)
		}
		if bytes+len(text)+1 > most {
			if err := send(); err != nil {
				return added, err
			}
		}
		change.Add, bytes = append(change.Add, r), bytes+len(text)+1
	}
	return added, send()
}

// Regions lists regions of a group's memory: count of them at most, from the from-th on, counted
// from 0. count 0: as many as one answer may have.
func (c *Client) Regions(ctx context.Context, group string, from, count int) (list Regions, err error) {
	path := fmt.Sprintf("%s/%s%s?from=%d&count=%d", api.GroupsPath, url.PathEscape(group), api.RegionsPath, from, count)
	return list, c.do(ctx, http.MethodGet, path, nil, &list)
}

// Groups lists the groups.
func (c *Client) Groups(ctx context.Context) (groups api.Groups, err error) {
	return groups, c.do(ctx, http.MethodGet, api.GroupsPath, nil, &groups)
}

// Group returns the description of one group.
func (c *Client) Group(ctx context.Context, name string) (group api.Group, err error) {
	return group, c.do(ctx, http.MethodGet, api.GroupsPath+"/"+url.PathEscape(name), nil, &group)
}

// Tree returns a group's tree: the parts of this box and of those behind it.
func (c *Client) Tree(ctx context.Context, name string) (tree api.Tree, err error) {
	return tree, c.do(ctx, http.MethodGet, api.TreesPath+"/"+url.PathEscape(name), nil, &tree)
}

// Perftests lists the group IPs on which perftest clients are served.
func (c *Client) Perftests(ctx context.Context) (list api.Perftests, err error) {
	return list, c.do(ctx, http.MethodGet, api.PerftestPath, nil, &list)
}

// PerftestUp starts to serve perftest clients on a group IP.
func (c *Client) PerftestUp(ctx context.Context, request api.PerftestRequest) (up api.Perftest, err error) {
	return up, c.post(ctx, api.PerftestPath, request, &up)
}

// post sends a request as JSON.
func (c *Client) post(ctx context.Context, path string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return api.Errorf(api.BadRequest, "%v", err)
	}
	return c.do(ctx, http.MethodPost, path, body, answer)
}

// PerftestDown stops serving perftest clients on a group IP.
func (c *Client) PerftestDown(ctx context.Context, groupIP string) (removed api.Removed, err error) {
	return removed, c.do(ctx, http.MethodDelete, api.PerftestPath+"/"+url.PathEscape(groupIP), nil, &removed)
}

// CMs lists the group IPs at which the box answers RDMA-CM.
func (c *Client) CMs(ctx context.Context) (list api.CMs, err error) {
	return list, c.do(ctx, http.MethodGet, api.CMPath, nil, &list)
}

// CMUp starts to answer RDMA-CM at a group IP.
func (c *Client) CMUp(ctx context.Context, request api.CMRequest) (up api.CM, err error) {
	return up, c.post(ctx, api.CMPath, request, &up)
}

// CMDown ends the connections at a group IP, and stops to answer RDMA-CM there.
func (c *Client) CMDown(ctx context.Context, groupIP string) (removed api.Removed, err error) {
	return removed, c.do(ctx, http.MethodDelete, api.CMPath+"/"+url.PathEscape(groupIP), nil, &removed)
}

// Status reports whether the box works, and what does not.
func (c *Client) Status(ctx context.Context) (status api.Status, err error) {
	return status, c.do(ctx, http.MethodGet, api.StatusPath, nil, &status)
}

// Reload makes the daemon take over what has changed in its config file. After an error nothing has
// changed.
func (c *Client) Reload(ctx context.Context) (done api.Reloaded, err error) {
	return done, c.do(ctx, http.MethodPost, api.ReloadPath, nil, &done)
}

// Ports lists the ports.
func (c *Client) Ports(ctx context.Context) (ports api.Ports, err error) {
	return ports, c.do(ctx, http.MethodGet, api.PortsPath, nil, &ports)
}

// Stats returns the counters.
func (c *Client) Stats(ctx context.Context) (stats api.Stats, err error) {
	return stats, c.do(ctx, http.MethodGet, api.StatsPath, nil, &stats)
}

// Traffic returns totals of the groups that this box carries; with the name of a group: of that
// one. The difference of two answers is a rate.
func (c *Client) Traffic(ctx context.Context, group string) (traffic api.Traffic, err error) {
	path := api.TrafficPath
	if group != "" {
		path += "/" + url.PathEscape(group)
	}
	return traffic, c.do(ctx, http.MethodGet, path, nil, &traffic)
}

// EventsAfter returns the events after a cursor, and the cursor for the next question. If there is
// none, it waits for one, at most for the time wait; a wait over api.MaxEventWait is shortened.
// group selects the events of one group; "": all.
func (c *Client) EventsAfter(ctx context.Context, at Cursor, group string, wait time.Duration) (events Events, err error) {
	q := url.Values{"run": {at.Run}, "seq": {strconv.FormatUint(at.Seq, 10)}, "group": {group}}
	q.Set("wait", strconv.Itoa(int(min(wait, api.MaxEventWait)/time.Second)))
	return events, c.do(ctx, http.MethodGet, api.EventsPath+"?"+q.Encode(), nil, &events)
}

// Log returns the state of the daemon's log.
func (c *Client) Log(ctx context.Context) (log api.Log, err error) {
	return log, c.do(ctx, http.MethodGet, api.LogPath, nil, &log)
}

// SetLog changes the level of the daemon's log, until the daemon starts again.
func (c *Client) SetLog(ctx context.Context, wanted api.Log) (log api.Log, err error) {
	body, err := json.Marshal(wanted)
	if err != nil {
		return log, api.Errorf(api.BadRequest, "%v", err)
	}
	return log, c.do(ctx, http.MethodPut, api.LogPath, body, &log)
}

// Features lists the kernel features that rocast uses.
func (c *Client) Features(ctx context.Context) (features api.Features, err error) {
	return features, c.do(ctx, http.MethodGet, api.FeaturesPath, nil, &features)
}

// Version returns the version of the daemon.
func (c *Client) Version(ctx context.Context) (version api.Version, err error) {
	return version, c.do(ctx, http.MethodGet, api.VersionPath, nil, &version)
}

// lookAgainAfter is the longest time after which WaitClear looks at a group again without an event.
const lookAgainAfter = time.Second

// WaitClear waits until a group is clear to send: until all its members are reached and have
// confirmed if they were to. It also waits for a group that does not exist yet, and ends with an
// error when the group has failed, or with that of ctx.
func (c *Client) WaitClear(ctx context.Context, name string) (group Group, err error) {
	for {
		at, err := c.EventsAfter(ctx, Cursor{}, name, 0) // only the cursor counts
		if err == nil {
			group, err = c.Group(ctx, name)
		}
		switch {
		case ctx.Err() != nil:
			return group, waitEnded(name, group, ctx.Err())
		case err != nil && KindOf(err) != api.NotFound:
			return group, err
		case err == nil && group.State == api.Failed:
			return group, api.Errorf(api.Unavailable, "group %s has failed: %s", name, group.Reason)
		case err == nil && group.ClearToSend:
			return group, nil
		}
		if _, err := c.EventsAfter(ctx, at.Cursor, name, lookAgainAfter); err != nil && ctx.Err() == nil {
			return group, err
		}
	}
}

// waitEnded returns the error of a wait that ctx ended. It names what was waited for.
func waitEnded(name string, group Group, cause error) error {
	for _, m := range group.Members {
		if m.State == api.Waiting {
			return api.Errorf(api.Unavailable, "group %s is not clear to send (%v): %s: %s", name, cause, m.IP, m.Reason)
		}
	}
	return api.Errorf(api.Unavailable, "group %s is not clear to send (%v)", name, cause)
}

// Progress yields the state of a group now and then again every period, until ctx ends or the group
// cannot be asked: its error is yielded last.
func (c *Client) Progress(ctx context.Context, name string, period time.Duration) iter.Seq2[Group, error] {
	return func(yield func(Group, error) bool) {
		for {
			group, err := c.Group(ctx, name)
			if ctx.Err() != nil || !yield(group, err) || err != nil || pause(ctx, period) != nil {
				return
			}
		}
	}
}

// do sends a request and decodes the answer into the parameter into. Its error is always an *Error.
func (c *Client) do(ctx context.Context, method, path string, body []byte, into any) error {
	status, text, err := c.send(ctx, method, path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if status/100 != 2 {
		return refusal(status, text)
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return api.Errorf(api.Internal, "the program that answers on %s is not a rocastd of this version: %v", c.address, err)
	}
	return nil
}

// Metrics returns the metrics as Prometheus reads them.
func (c *Client) Metrics(ctx context.Context) (text string, err error) {
	status, text, err := c.send(ctx, http.MethodGet, api.MetricsPath, nil)
	if err == nil && status != http.StatusOK {
		err = refusal(status, text)
	}
	return text, err
}

// send sends a request and returns the status and the undecoded answer.
func (c *Client) send(ctx context.Context, method, path string, body io.Reader) (status int, answer string, err error) {
	response, err := c.begin(ctx, method, path, body)
	if err != nil {
		return 0, "", err
	}
	answer, err = c.whole(response, method, path)
	return response.StatusCode, answer, err
}

// whole reads an answer to its end.
func (c *Client) whole(response *http.Response, method, path string) (answer string, err error) {
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	if err != nil {
		return "", c.unanswered(method, path, err)
	}
	return string(text), nil
}

// begin sends a request and returns the beginning of the answer.
func (c *Client) begin(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	connected := false
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }}
	request, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), method, c.url+path, body)
	if err != nil {
		return nil, api.Errorf(api.BadRequest, "%v", err)
	}
	if c.bodies != "" {
		request.Header.Set("Content-Type", c.bodies)
	}
	response, err := c.http.Do(request)
	switch {
	case err == nil:
		return response, nil
	case !connected:
		return nil, c.unreachable(err)
	}
	return nil, c.unanswered(method, path, err)
}

func refusal(status int, text string) error {
	var body api.ErrorBody
	if err := json.Unmarshal([]byte(text), &body); err != nil || body.Error == nil {
		return api.Errorf(api.Internal, "the daemon answered %d without a reason; see its log", status)
	}
	return body.Error
}

// unreachable returns the error of a request that was not sent.
func (c *Client) unreachable(err error) error {
	err = rootOf(err)
	remedy := c.remedy
	switch {
	case errors.Is(err, os.ErrPermission):
		remedy = "run as root, or join the socket's group"
	case errors.Is(err, context.DeadlineExceeded):
		remedy = "see the daemon's log"
	}
	return api.Errorf(api.Unreachable, "no daemon answers on %s (%v); %s", c.address, err, remedy)
}

// unanswered returns the error of a request that was sent, at least in part, and has no answer. The
// daemon does not stop a change whose answer comes too late.
func (c *Client) unanswered(method, path string, err error) error {
	remedy := "see the daemon's log"
	if method != http.MethodGet && path != api.TracePath {
		show := "rocast group ls"
		switch {
		case strings.HasPrefix(path, api.PerftestPath):
			show = "rocast perftest ls"
		case strings.HasPrefix(path, api.CMPath):
			show = "rocast cm ls"
		case path == api.ReloadPath:
			show = "rocast status"
		case method == http.MethodPut:
			show = "rocast group show " + strings.TrimPrefix(path, api.GroupsPath+"/")
		}
		remedy = "it may still carry out the request: " + show + " shows whether it did"
	}
	return api.Errorf(api.Unreachable, "the daemon on %s did not answer (%v); %s", c.address, rootOf(err), remedy)
}

// rootOf removes the text of net and net/http about the request, which the user did not write.
func rootOf(err error) error {
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	var operation *net.OpError
	if errors.As(err, &operation) {
		err = operation.Err
	}
	var call *os.SyscallError
	if errors.As(err, &call) {
		err = call.Err
	}
	return err
}
