package report

import "slices"

// usualPayload is that of the settings in which something else varies.
const usualPayload = 1024

// sweep is the content of one table and of one plot: settings that differ in one number.
type sweep struct {
	title, file, label string
	section            string
	also               bool // rows of the main section belong to it, too
	varies             func(Setting) int
	belongs            func(Setting) bool
}

var sweeps = []sweep{
	{
		title: "Payloads", file: "payload.svg", label: "payload, bytes", section: SectionPayload, also: true,
		varies: func(s Setting) int { return s.Payload }, belongs: func(Setting) bool { return true },
	},
	{
		title: "Receivers", file: "receivers.svg", label: "receivers", section: SectionReceivers, also: true,
		varies: func(s Setting) int { return s.Receivers }, belongs: func(s Setting) bool { return s.Payload == usualPayload },
	},
	{
		title: "Groups", file: "groups.svg", label: "groups", section: SectionGroups,
		varies: func(s Setting) int { return s.Groups }, belongs: func(Setting) bool { return true },
	},
	{
		title: "Workers", file: "workers.svg", label: "workers", section: SectionWorkers,
		varies: func(s Setting) int { return s.Workers }, belongs: func(Setting) bool { return true },
	},
}

// section returns the rows of a section.
func (r *Report) section(name string) (rows []*Row) {
	for i := range r.Throughput {
		if r.Throughput[i].Section == name {
			rows = append(rows, &r.Throughput[i])
		}
	}
	return rows
}

// rowsOf returns the rows of a sweep in the order of the number in which they differ.
func (r *Report) rowsOf(w sweep) []*Row {
	rows := r.section(w.section)
	if w.also {
		rows = append(rows, r.section(SectionMain)...)
	}
	rows = slices.DeleteFunc(rows, func(row *Row) bool { return !w.belongs(row.Setting) })
	slices.SortStableFunc(rows, func(a, b *Row) int { return w.varies(a.Setting) - w.varies(b.Setting) })
	return rows
}

// drawable reports whether a sweep has enough settings for lines: more than two.
func (r *Report) drawable(w sweep) bool {
	values := map[int]bool{}
	for _, row := range r.rowsOf(w) {
		values[w.varies(row.Setting)] = true
	}
	return len(r.section(w.section)) > 0 && len(values) > 2
}
