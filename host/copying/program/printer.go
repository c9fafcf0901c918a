package program

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/rocast/rocast/host/copying"
)

// plainEvery is how often the progress is a line where no terminal shows it.
const plainEvery = 10 * time.Second

// printer shows events: as JSON, as one line that is overwritten, or as lines.
type printer struct {
	json     *json.Encoder // nil: for people
	out      io.Writer     // for people
	terminal bool
	shown    bool // the line of the progress is there
	last     time.Time
}

func (env *Environment) printer(asJSON bool, events io.Writer) *printer {
	p := &printer{out: env.Err, terminal: env.Terminal, last: time.Now()}
	if asJSON {
		p.json = json.NewEncoder(events)
	}
	return p
}

func (p *printer) print(e copying.Event) {
	if p.json != nil {
		_ = p.json.Encode(e) // nobody listens any more
		return
	}
	if e.Event == copying.Progress {
		switch {
		case p.terminal:
			fmt.Fprintf(p.out, "\r%s\x1b[K", sentence(e))
			p.shown = true
		case time.Since(p.last) >= plainEvery:
			p.last = time.Now()
			fmt.Fprintln(p.out, sentence(e))
		}
		return
	}
	p.clear()
	fmt.Fprintln(p.out, sentence(e))
}

// clear removes the line of the progress.
func (p *printer) clear() {
	if p.shown {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.shown = false
	}
}

// sentence is what is shown of an event. Hosts and reasons come from the other side, so they may
// not move the terminal's cursor.
func sentence(e copying.Event) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, words(e))
}

func words(e copying.Event) string {
	switch e.Event {
	case copying.Joined:
		return e.Host + " is there"
	case copying.Gone:
		return e.Host + " has gone, and the others go on: " + e.Reason
	case copying.LeftOut:
		return fmt.Sprintf("%q is left out: %s", e.Path, e.Reason)
	case copying.FromPeer:
		if e.Reason != "" {
			return fmt.Sprintf("%s gives no files any more: %s", e.Host, e.Reason)
		}
		return fmt.Sprintf("%s has given %d files, %s, that the source did not send", e.Host, e.Files, size(e.Bytes))
	case copying.Way:
		return "the messages go by " + e.Reason
	case copying.Done:
		if e.Slowest == "" && e.Total == 0 {
			return fmt.Sprintf("%s in %d files are here", size(e.Bytes), e.Files)
		}
		return fmt.Sprintf("%d receivers have all %s", e.Files, size(e.Bytes))
	}
	return progress(e)
}

// barColumns is the width of the bar.
const barColumns = 20

func progress(e copying.Event) string {
	if e.Total == 0 {
		return size(e.Bytes)
	}
	part := min(1, float64(e.Bytes)/float64(e.Total))
	full := int(part * barColumns)
	return fmt.Sprintf("[%s%s] %3.0f %% of %s, %s/s, slowest %s, %v left", strings.Repeat("=", full), strings.Repeat(" ", barColumns-full),
		100*part, size(e.Total), size(int64(e.Rate)), e.Slowest, time.Duration(e.Left*float64(time.Second)).Round(time.Second))
}

func size(bytes int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	n, u := float64(bytes), 0
	for ; n >= 1024 && u < len(units)-1; u++ {
		n /= 1024
	}
	if u == 0 {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.1f %s", n, units[u])
}
