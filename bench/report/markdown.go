package report

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The contestants that others are compared with.
const (
	barPeer   = "c-inplace"
	limitPeer = "xdp-broadcast"
)

// Limits beyond which a figure is marked as unreliable.
const (
	starvedShare   = 0.03 // of the time; if it is less, the hosts' CPU was never idle
	disturbedShare = 0.02 // of the time; if it is more, other processes used the forwarder's CPU
	resentShare    = 0.001
	busyCPUs       = 0.2
)

// Markdown renders the report. Call Summarize first.
func (r *Report) Markdown() string {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, "# rocast beside other forwarders\n\n")
	fmt.Fprintf(&b, "`make bench`%s, %s, %.0f minutes. %s.\n\n", map[bool]string{true: " with SHORT=1"}[r.Form == "short"],
		r.Began.UTC().Format("2006-01-02 15:04 UTC"), r.Seconds/60, m.line())
	if m.Busy > busyCPUs {
		b.WriteString(busyWarning + "\n\n")
	}
	b.WriteString(method)
	r.contestants(&b)
	r.mainTables(&b)
	for _, w := range sweeps {
		r.sweep(&b, w)
	}
	r.latencyTables(&b)
	r.changesTable(&b)
	r.restartsTable(&b)
	leftList(&b, "##", r.Left)
	return b.String()
}

// line describes the machine, without a full stop.
func (m *Machine) line() string {
	text := fmt.Sprintf("rocast %s; %s, %d CPUs; Linux %s; %s", or(m.Version, "of an unknown version"), or(m.CPU, "unknown CPU"), m.CPUs, m.Kernel, m.Go)
	for _, tool := range []string{m.C, m.OVS} {
		if tool != "" {
			text += "; " + tool
		}
	}
	return text + fmt.Sprintf(". CPUs in use before the run: %.2f", m.Busy)
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

const method = `## How it is measured

- Network namespaces over veth; two CPUs. The switch has one; the source and the receivers have the other.
- One setting at a time, all contestants in turn, several rounds, each in a new lab. Figures are medians; a ratio is the median
  of the ratios within the rounds. veth is slow whatever the program: read the ratios.
- **CPU-seconds of the switch** are the CPU time of the forwarder's processes and of the kernel threads that take in what
  arrives at the box's ports (threaded NAPI). Where the kernel forwards, these threads do all the work. *process only* leaves them out.
  What the far end of a veth pair does falls into the sender's time for everybody: a receiver's end counts a copy in XDP, the source's end
  copies an answer into an AF_XDP socket.
- Every packet is a WRITE ONLY with a RETH. **The source has a window** (256 packets, unless the table says otherwise) and goes
  back on a NAK or a timeout; receivers take packets in order, count each once, and answer the packets that ask, four in a window (rxe asks with
  every 64th packet too).
- **Every contestant gets all answers as frames at the receivers' ports.** rocast merges them, and the source gets the merged ones.
  The others bring each answer to the source as it is; the source knows each receiver's PSNs, which no NIC does, and opens its window when
  all receivers have a packet. Each ACK that the source gets is compared with what the receivers have.
- Groups of rocast have repair: off, except those of rocast-block-repair and rocast-kernel-repair. Other contestants repair nothing.
- Before it is measured, each contestant has to deliver 300 copies to each receiver that are right in every byte it claims. One that
  does not merge has to bring each answer of each receiver to the source, once and unchanged.

`

func (r *Report) contestants(b *strings.Builder) {
	b.WriteString("## Contestants\n\n| | what | rewrites | merges |\n|---|---|---|---|\n")
	for _, p := range r.Peers {
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", p.Name, p.What, p.Rewrites, map[bool]string{true: "yes"}[p.Merges])
	}
	b.WriteString("\n")
}

func (r *Report) mainTables(b *strings.Builder) {
	rows := r.section(SectionMain)
	if len(rows) == 0 {
		return
	}
	b.WriteString("## Throughput\n\n![throughput](throughput.svg)\n\n")
	for _, row := range rows {
		r.mainTable(b, row)
	}
	b.WriteString("Marks: *starved*: the hosts' CPU was hardly ever idle, so the contestant may have waited for the source, and one that spins pays for that. " +
		"*disturbed*: something else ran on the forwarder's CPU. *lossy*: more than one packet of a thousand was sent again.\n\n")
}

func (r *Report) mainTable(b *strings.Builder, row *Row) {
	fmt.Fprintf(b, "### %v\n\n| | k copies/CPU-s | min - max | of %s | of %s | process only, of %s | k copies/s | window | |\n|---|---|---|---|---|---|---|---|---|\n",
		row.Setting, barPeer, limitPeer, barPeer)
	bar, limit := row.Find(barPeer), row.Find(limitPeer)
	for i := range row.Cells {
		c := &row.Cells[i]
		if len(c.Samples) == 0 {
			continue
		}
		fmt.Fprintf(b, "| %s | %.0f | %.0f - %.0f | %s | %s | %s | %.0f | %d | %s |\n", c.Peer,
			c.PerCPU.Median, c.PerCPU.Min, c.PerCPU.Max, against(c, bar, (*Sample).PerCPU), against(c, limit, (*Sample).PerCPU),
			against(c, bar, (*Sample).PerProcessCPU), c.Rate.Median, c.Window, strings.Join(c.marks(), ", "))
	}
	b.WriteString("\n")
}

// against returns the ratio of two contestants with its extremes, or a dash.
func against(c, bar *Cell, figure func(*Sample) float64) string {
	if bar == nil {
		return "-"
	}
	r := ratio(c, bar, figure)
	if r.Median == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", r.Median)
}

func (c *Cell) marks() (marks []string) {
	seconds := func(s *Sample) float64 { return s.Seconds }
	if c.share(func(s *Sample) float64 { return s.Seconds - s.HostsCPU }, seconds) < starvedShare {
		marks = append(marks, "starved")
	}
	if c.share(func(s *Sample) float64 { return s.Disturbed }, seconds) > disturbedShare {
		marks = append(marks, "disturbed")
	}
	if c.share(func(s *Sample) float64 { return float64(s.Resent) }, func(s *Sample) float64 { return float64(s.Sent) }) > resentShare {
		marks = append(marks, "lossy")
	}
	return marks
}

// sweep writes a table with a column for each setting.
func (r *Report) sweep(b *strings.Builder, w sweep) {
	rows := r.rowsOf(w)
	if len(r.section(w.section)) == 0 {
		return
	}
	fmt.Fprintf(b, "## %s\n\n", w.title)
	if r.drawable(w) {
		fmt.Fprintf(b, "![%s](%s)\n\n", strings.ToLower(w.title), w.file)
	}
	b.WriteString("Thousand copies for each CPU-second; in brackets the ratio to " + barPeer + ".\n\n| |")
	for _, row := range rows {
		fmt.Fprintf(b, " %v |", row.Setting)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(rows)) + "\n")
	for _, name := range r.peerNames() {
		cells, any := "", false
		for _, row := range rows {
			text, ok := sweepCell(row, name)
			cells += " " + text + " |"
			any = any || ok
		}
		if any {
			fmt.Fprintf(b, "| %s |%s\n", name, cells)
		}
	}
	b.WriteString("\n")
}

func sweepCell(row *Row, name string) (text string, ok bool) {
	c := row.Find(name)
	if c == nil || len(c.Samples) == 0 {
		return "-", false
	}
	text = fmt.Sprintf("%.0f", c.PerCPU.Median)
	if name != barPeer {
		text += " (" + against(c, row.Find(barPeer), (*Sample).PerCPU) + ")"
	}
	for _, m := range c.marks() {
		text += " *" + m + "*"
	}
	return text, true
}

func (r *Report) latencyTables(b *strings.Builder) {
	type table struct{ payload, pause int }
	var tables []table
	for i := range r.Latency {
		l := &r.Latency[i]
		if t := (table{l.Payload, l.Pause}); !slices.Contains(tables, t) && len(r.latencies(t.payload, t.pause)) > 0 {
			tables = append(tables, t)
		}
	}
	if len(tables) == 0 {
		return
	}
	b.WriteString("## Latency\n\n")
	if len(r.usualLatencies()) > 0 {
		b.WriteString("![latency](latency.svg)\n\n")
	}
	b.WriteString("Microseconds from before the source's system call to the arrival in XDP at the last receiver, one packet at a time. " +
		"NAPI is not threaded here. After the longer pauses every forwarder that blocks has done so.\n\n")
	for _, t := range tables {
		rows := r.latencies(t.payload, t.pause)
		fmt.Fprintf(b, "| %d bytes, %d receivers, %v between packets | p50 | p90 | p99 | p99.9 |\n|---|---|---|---|---|\n",
			t.payload, rows[0].Receivers, time.Duration(t.pause)*time.Microsecond)
		for _, l := range rows {
			q := l.Medians
			fmt.Fprintf(b, "| %s | %.1f | %.1f | %.1f | %.1f |\n", l.Peer, q.P50, q.P90, q.P99, q.P999)
		}
		b.WriteString("\n")
	}
}

func (r *Report) changesTable(b *strings.Builder) {
	c := r.Changes
	if c == nil {
		return
	}
	fmt.Fprintf(b, "## Creating and removing groups\n\n%d groups through the daemon's API, four requests at a time, while another group's "+
		"source sends as fast as it can. A creation includes the third of a second in which the daemon asks the network whether the "+
		"group's IP is taken.\n\n| ms | p50 | p90 | p99 |\n|---|---|---|---|\n", c.Groups)
	for _, q := range []struct {
		name string
		LatencyQuantile
	}{{"create", c.Create}, {"remove", c.Remove}} {
		fmt.Fprintf(b, "| %s | %.1f | %.1f | %.1f |\n", q.name, q.P50/1e3, q.P90/1e3, q.P99/1e3)
	}
	b.WriteString("\n| the running group | k copies/s | packets sent again | longest wait for an ACK, ms |\n|---|---|---|---|\n")
	for _, g := range []struct {
		name string
		Running
	}{{"nothing changes", c.Undisturbed}, {"groups come and go", c.Disturbed}} {
		fmt.Fprintf(b, "| %s | %.0f | %d | %.1f |\n", g.name, over(float64(g.Copies)/1e3, g.Seconds), g.Resent, g.Longest)
	}
	b.WriteString("\n")
}

func (r *Report) restartsTable(b *strings.Builder) {
	if len(r.Restarts) == 0 {
		return
	}
	b.WriteString("## Killing and starting the daemon\n\nThe daemon is killed and started again at once, while the source of one group " +
		"sends as fast as it can: the time from the kill to the first copy at a receiver, and the daemon's CPU time until its API " +
		"answers. The source sends again every 100 ms, so the first copy may come that much later than it could.\n\n" +
		"| ms | rounds | first copy: median | least | most | CPU: median | least | most |\n|---|---|---|---|---|---|---|---|\n")
	for _, k := range r.Restarts {
		var copies, cpu []float64
		for _, one := range k.Rounds {
			copies, cpu = append(copies, one.FirstCopy), append(cpu, one.CPU)
		}
		groups := fmt.Sprintf("%d groups", k.Groups)
		if k.Groups == 1 {
			groups = "1 group"
		}
		first, used := spreadOf(copies), spreadOf(cpu)
		fmt.Fprintf(b, "| %s | %d | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f |\n", groups, len(k.Rounds),
			first.Median, first.Min, first.Max, used.Median, used.Min, used.Max)
	}
	b.WriteString("\n")
}

func leftList(b *strings.Builder, heading string, left []Left) {
	if len(left) == 0 {
		return
	}
	b.WriteString(heading + " What did not run\n\n")
	for _, l := range left {
		how := ""
		if l.Failed {
			how = "**failed**: "
		}
		fmt.Fprintf(b, "- %s: %s%s\n", l.What, how, strings.Join(strings.Fields(l.Why), " "))
	}
}
