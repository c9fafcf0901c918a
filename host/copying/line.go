package copying

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// report is what a receiver says: a line of JSON on its connection to the source.
type report struct {
	Hello    *hello    `json:"hello,omitempty"`
	Have     *have     `json:"have,omitempty"`
	Lacks    *lacks    `json:"lacks,omitempty"`
	Pass     *passed   `json:"pass,omitempty"`
	Progress *progress `json:"progress,omitempty"`
	Error    string    `json:"error,omitempty"`
	Done     bool      `json:"done,omitempty"`
}

type hello struct {
	Token string `json:"token"`
	Host  string `json:"host"`
	// Shares is where it gives files to other receivers; empty: it neither gives nor takes.
	Shares string `json:"shares,omitempty"`
}

// have answers the list of a batch.
type have struct {
	Pass  uint32        `json:"pass"`
	Batch uint64        `json:"batch"`
	All   bool          `json:"all,omitempty"` // this process has verified the batch before
	Files map[int]claim `json:"files,omitempty"`
}

// claim is what a receiver has of a file: all, or units. The sums are sealed.
type claim struct {
	Whole sum   `json:"whole,omitempty"`
	Units []sum `json:"units,omitempty"` // empty: it lacks this one

	info os.FileInfo // of the whole file, when it was read
}

// sum is a SHA-256.
type sum []byte

// sealed is a SHA-256 as a receiver says it. Who has the same bytes knows which ones are meant, and
// nobody else learns their SHA-256. So a source can name the SHA-256 of a file only if it knows the
// file, and a receiver that compares them gives others no file that only the receiver has.
func sealed(token [16]byte, s []byte) sum {
	h := sha256.New()
	h.Write(token[:])
	h.Write(s)
	return h.Sum(nil)
}

func (s sum) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(s)), nil }

func (s *sum) UnmarshalText(text []byte) (err error) {
	*s, err = hex.DecodeString(string(text))
	return err
}

// lacks answers the end of a batch.
type lacks struct {
	Pass  uint32 `json:"pass"`
	Batch uint64 `json:"batch"`
	Files []int  `json:"files,omitempty"`
	All   bool   `json:"all,omitempty"` // it has not heard the list
	// Refuses are the addresses of receivers that have given nothing good: they need not be named
	// to this one any more. Alone: nor do any others.
	Refuses []string `json:"refuses,omitempty"`
	Alone   bool     `json:"alone,omitempty"`
}

// passed answers the end of a pass.
type passed struct {
	Pass     uint32 `json:"pass"`
	Complete bool   `json:"complete"`
}

// progress is sent about once a second, also if nothing has changed: the receiver lives. Work grows
// while it does anything.
type progress struct {
	Bytes int64 `json:"bytes"`
	Files int64 `json:"files"`
	Work  int64 `json:"work"`
}

// maxReport bounds a line: the claims of a batch. maxHello bounds what anybody may send before the
// token.
const (
	maxReport = 8 << 20
	maxHello  = 4 << 10
)

// writeTimeout is how long the other side may take for what is written at once.
const writeTimeout = 30 * time.Second

// line is the connection between a receiver and its source. The receiver sends lines of JSON, the
// source messages, each behind its length.
type line struct {
	conn  net.Conn
	known bool       // the other side has shown the token
	mu    sync.Mutex // of writing
}

func (l *line) report(r report) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return l.write(append(text, '\n'))
}

func (l *line) message(b []byte) error {
	return l.write(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b)
}

func (l *line) write(parts ...[]byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	buffers := net.Buffers(parts)
	_, err := buffers.WriteTo(l.conn)
	return err
}

// reports calls do with each report until the connection ends.
func (l *line) reports(do func(*report)) error {
	lines := bufio.NewScanner(l.conn)
	lines.Buffer(make([]byte, maxHello+1), maxReport)
	lines.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		if !l.known && len(data) > maxHello && !bytes.Contains(data, []byte("\n")) {
			return 0, nil, errForeign
		}
		return bufio.ScanLines(data, atEOF)
	})
	for lines.Scan() {
		var r report
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("a report that is no report: %w", err)
		}
		do(&r)
	}
	return lines.Err()
}

// messages calls do with each message until the connection ends.
func (l *line) messages(do func([]byte) error) error {
	var length [4]byte
	buffer := make([]byte, MessageBytes)
	in := bufio.NewReader(l.conn)
	for {
		if _, err := io.ReadFull(in, length[:]); err != nil {
			return err
		}
		n := binary.BigEndian.Uint32(length[:])
		if n > MessageBytes {
			return errForeign
		}
		if _, err := io.ReadFull(in, buffer[:n]); err != nil {
			return err
		}
		if err := do(buffer[:n]); err != nil {
			return err
		}
	}
}
