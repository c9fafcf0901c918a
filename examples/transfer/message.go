package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/rocast/rocast/roce"
)

// message is a line of JSON between a host and the coordinator. The key that is there says which
// step of the workflow it is. A connection that ends is the end of the transfer for both sides.
type message struct {
	Receiver *netip.Addr `json:"receiver,omitempty"` // from a host: it waits for a transfer
	Request  *request    `json:"request,omitempty"`  // 1: the sender asks for a transfer
	Prepare  int64       `json:"prepare,omitempty"`  // 2: a receiver needs memory for so many bytes,
	QP       *queuePair  `json:"qp,omitempty"`       //    and answers with its queue pair
	Connect  *queuePair  `json:"connect,omitempty"`  // 3: the group is set up; this is the peer of a receiver's queue pair,
	State    string      `json:"state,omitempty"`    //    which answers with its state
	Clear    *queuePair  `json:"clear,omitempty"`    // 4: the same for the sender: it is clear to send
	Sent     string      `json:"sent,omitempty"`     // 6: everything is sent and acknowledged; this is its SHA-256
	Save     int64       `json:"save,omitempty"`     //    a receiver has this many bytes of a file,
	Saved    string      `json:"saved,omitempty"`    //    and answers with the SHA-256 of its copy
	Result   *result     `json:"result,omitempty"`   // 7: the group is removed
	Error    string      `json:"error,omitempty"`    // the transfer has failed
}

// request asks for a transfer from a queue pair to some hosts.
type request struct {
	From  queuePair    `json:"from"`
	To    []netip.Addr `json:"to"`
	Bytes int64        `json:"bytes"`
}

// queuePair is what a peer has to know of a queue pair and of the memory behind it.
type queuePair struct {
	IP   netip.Addr `json:"ip"`
	QPN  roce.QPN   `json:"qpn"`
	PSN  roce.PSN   `json:"psn"`            // the first one that it sends; of a receiver, that it expects
	VA   uint64     `json:"va,omitempty"`   // of the memory
	RKey uint32     `json:"rkey,omitempty"` // of the memory
}

// result says which receivers have the file, and of all others why they do not.
type result struct {
	Delivered []netip.Addr          `json:"delivered"`
	Failed    map[netip.Addr]string `json:"failed,omitempty"`
}

// line is a connection that carries messages. It ends with the context that it was made with.
type line struct {
	conn   net.Conn
	reader *json.Decoder
}

func newLine(ctx context.Context, conn net.Conn) *line {
	context.AfterFunc(ctx, func() { conn.Close() })
	return &line{conn: conn, reader: json.NewDecoder(conn)}
}

func (l *line) send(m message) error { return json.NewEncoder(l.conn).Encode(m) }

// receive returns the next message. A message of the other side that says why it gives up is an
// error.
func (l *line) receive() (m message, err error) {
	err = l.reader.Decode(&m)
	switch {
	case errors.Is(err, io.EOF):
		err = errors.New("the other side has closed the connection")
	case err == nil && m.Error != "":
		err = errors.New(m.Error)
	}
	return m, err
}

// ask sends a message and returns the answer. within bounds the time; 0: no bound.
func (l *line) ask(m message, within time.Duration) (message, error) {
	var end time.Time
	if within > 0 {
		end = time.Now().Add(within)
	}
	if err := errors.Join(l.conn.SetDeadline(end), l.send(m)); err != nil {
		return message{}, err
	}
	answer, err := l.receive()
	return answer, errors.Join(err, l.conn.SetDeadline(time.Time{}))
}
