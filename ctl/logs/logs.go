// Package logs is the daemon's log: its format, its level, which may change while the daemon runs,
// and the limit for lines that repeat.
//
// A line has a constant text and its values as fields, so lines with the same text repeat. More
// than MostASecond of them in a second are held back, and counted: each ReportEvery one line says
// how many of which text were.
package logs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"
)

const (
	MostASecond = 20
	ReportEvery = 10 * time.Second
)

// Formats of a log. Auto is Journal where the journal reads the log, and Console elsewhere.
const (
	Auto    = "auto"
	Console = "console" // for people
	JSON    = "json"
	// Journal is JSON with the priority of each line in front (sd-daemon(3)), which the journal
	// takes away.
	Journal = "journal"
)

// Levels are the levels of a log, the most talkative one first.
var Levels = []string{"debug", "info", "warn", "error"}

// Log is a log. Its methods may be called from any goroutine.
type Log struct {
	*zap.Logger
	level zap.AtomicLevel
	whole *zap.Logger // holds nothing back

	mu   sync.Mutex
	held map[string]int // lines that were held back since the last report, by text
}

// New returns a log that is written to out.
func New(format, level string, out io.Writer) (*Log, error) {
	l := &Log{level: zap.NewAtomicLevel(), held: map[string]int{}}
	if err := l.SetLevel(level); err != nil {
		return nil, err
	}
	core := zapcore.NewCore(encoder(format, out), zapcore.Lock(zapcore.AddSync(out)), l.level)
	l.whole = zap.New(core)
	l.Logger = zap.New(zapcore.NewSamplerWithOptions(core, time.Second, MostASecond, 0, zapcore.SamplerHook(l.decided)))
	return l, nil
}

func encoder(format string, out io.Writer) zapcore.Encoder {
	form := zap.NewProductionEncoderConfig()
	form.EncodeTime = zapcore.ISO8601TimeEncoder
	if format == Auto && isJournal(out, os.Getenv("JOURNAL_STREAM")) {
		format = Journal
	}
	switch format {
	case Journal:
		return prioritized{zapcore.NewJSONEncoder(form)}
	case JSON:
		return zapcore.NewJSONEncoder(form)
	}
	return zapcore.NewConsoleEncoder(form)
}

// isJournal reports whether out is the stream to the journal that systemd names in JOURNAL_STREAM,
// as DEVICE:INODE. A program that was started from the daemon has the variable too, and maybe
// another stream.
func isJournal(out io.Writer, stream string) bool {
	file, ok := out.(*os.File)
	if !ok || stream == "" {
		return false
	}
	var is unix.Stat_t
	return unix.Fstat(int(file.Fd()), &is) == nil && stream == fmt.Sprintf("%d:%d", is.Dev, is.Ino)
}

// prioritized writes the priority of syslog in front of each line.
type prioritized struct{ zapcore.Encoder }

var priorities = map[zapcore.Level]string{zapcore.DebugLevel: "<7>", zapcore.InfoLevel: "<6>", zapcore.WarnLevel: "<4>", zapcore.ErrorLevel: "<3>"}

var lines = buffer.NewPool()

// Clone implements zapcore.Encoder.
func (p prioritized) Clone() zapcore.Encoder { return prioritized{p.Encoder.Clone()} }

// EncodeEntry implements zapcore.Encoder.
func (p prioritized) EncodeEntry(e zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	text, err := p.Encoder.EncodeEntry(e, fields)
	if err != nil {
		return nil, err
	}
	defer text.Free()
	priority, known := priorities[e.Level]
	if !known {
		priority = "<2>" // the daemon ends with this line
	}
	line := lines.Get()
	line.AppendString(priority)
	_, err = line.Write(text.Bytes())
	return line, err
}

// Level returns the present level.
func (l *Log) Level() string { return l.level.String() }

// SetLevel lets the log have lines of a level and of the graver ones.
func (l *Log) SetLevel(name string) error {
	if !slices.Contains(Levels, name) {
		return fmt.Errorf("%q is no level of the log; write one of %s", name, strings.Join(Levels, ", "))
	}
	level, err := zapcore.ParseLevel(name)
	if err == nil {
		l.level.SetLevel(level)
	}
	return err
}

// ForHTTP returns a logger for the ErrorLog of a http.Server. Its lines name the client, so no two
// have the same text; here they have one, and what they say is a field.
func ForHTTP(to *zap.Logger) *log.Logger { return log.New(httpLines{to}, "", 0) }

type httpLines struct{ to *zap.Logger }

// Write implements io.Writer.
func (h httpLines) Write(line []byte) (int, error) {
	h.to.Warn("the HTTP server reports an error", zap.ByteString("error", bytes.TrimSpace(line)))
	return len(line), nil
}

func (l *Log) decided(e zapcore.Entry, d zapcore.SamplingDecision) {
	if d&zapcore.LogDropped == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[e.Message]++
}

// Report says what was held back, each ReportEvery and at the end, until ctx is done.
func (l *Log) Report(ctx context.Context) {
	ticker := time.NewTicker(ReportEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			l.report()
			return
		case <-ticker.C:
			l.report()
		}
	}
}

func (l *Log) report() {
	l.mu.Lock()
	held := maps.Clone(l.held)
	clear(l.held)
	l.mu.Unlock()
	if len(held) == 0 {
		return
	}
	all := 0
	for _, n := range held {
		all += n
	}
	l.whole.Warn("lines of the log were held back, because more than the log takes had the same text in a second",
		zap.Int("lines", all), zap.Int("mostASecond", MostASecond), zap.Any("held", held))
}
