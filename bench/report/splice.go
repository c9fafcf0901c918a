package report

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// SplicePage puts the sections of a part that has only some of them into a page that WritePage has
// written, with their plots, their tables and their lines at the page's top. All else stays. Each
// section says of which run it is.
func SplicePage(dir string, p *Part) error {
	if len(p.Left) > 0 {
		return fmt.Errorf("%s stays as it is: %s failed", pageFile, p.Left[0].What)
	}
	file, plots := filepath.Join(dir, pageFile), filepath.Join(dir, plotsPath)
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text, err := p.splice(string(page), plotsPath)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(file, []byte(text), 0o644), p.Draw(plots), p.writeTables(plots))
}

// splice returns a page with the part's sections in place of those with the same titles. One that
// is new comes behind the one before it.
func (p *Part) splice(page, folder string) (string, error) {
	before, part, after, err := cutPart(page, "## "+p.Title)
	if err != nil {
		return "", err
	}
	const heading = "\n### "
	blocks := strings.Split(part, heading)
	// How the figures are measured is that of the newest run, whose first line stays.
	first, _, _ := strings.Cut(strings.TrimLeft(blocks[0], "\n"), "\n")
	blocks[0] = "\n" + first + "\n\n" + p.Text + "\n"
	at := 0
	for i := range p.Sections {
		s := &p.Sections[i]
		var b strings.Builder
		s.write(&b, folder, p.run())
		block := strings.TrimPrefix(strings.TrimSuffix(b.String(), "\n"), heading[1:])
		if old := slices.IndexFunc(blocks, func(b string) bool { return strings.HasPrefix(b, s.Title+"\n") }); old > 0 {
			at, blocks[old] = old, block
		} else {
			at++
			blocks = slices.Insert(blocks, at, block)
		}
	}
	page = before + strings.Join(blocks, heading) + after
	for list, lines := range map[string]func(*Section) string{promisesHeading: (*Section).promises, behindHeading: (*Section).behind} {
		before, part, after, err := cutPart(page, list)
		if err != nil {
			return "", err
		}
		page = before + p.spliceLines(part, lines) + after
	}
	return page, nil
}

// cutPart cuts a page behind a heading and before the next one of its level.
func cutPart(page, heading string) (before, part, after string, err error) {
	begin := strings.Index(page, "\n"+heading+"\n")
	if begin < 0 {
		return "", "", "", fmt.Errorf("%s has no %q: write the whole page first", pageFile, heading)
	}
	begin += 1 + len(heading) + 1
	end := strings.Index(page[begin:], "\n## ")
	if end < 0 {
		return "", "", "", fmt.Errorf("%s has nothing behind %q", pageFile, heading)
	}
	return page[:begin], page[begin : begin+end], page[begin+end:], nil
}

// spliceLines replaces the lines that a list has of the part's sections.
func (p *Part) spliceLines(list string, lines func(*Section) string) string {
	all := slices.Collect(strings.Lines(list))
	for i := range p.Sections {
		s := &p.Sections[i]
		at := len(all)
		for k := len(all) - 1; k >= 0; k-- {
			if strings.HasPrefix(strings.Replace(all[k], "**", "", 1), "- "+s.Title+": ") {
				all, at = slices.Delete(all, k, k+1), k
			}
		}
		if text := lines(s); text != "" {
			all = slices.Insert(all, at, text)
		}
	}
	return strings.Join(all, "")
}

// run says of which run a section is.
func (p *Part) run() string {
	text := fmt.Sprintf("Run of %s, rocast %s; CPUs in use before it: %.2f.", p.Began.UTC().Format("2006-01-02 15:04 UTC"), or(p.Machine.Version, "of an unknown version"), p.Machine.Busy)
	if p.Machine.Busy > busyCPUs {
		text += " " + busyWarning
	}
	if p.Short {
		text += " " + shortWarning
	}
	return text
}
