package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Write writes the samples, the tables and the plots into a directory, which it makes.
func (r *Report) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	plots := r.plots()
	errs := []error{
		os.WriteFile(filepath.Join(dir, "report.json"), append(text, '\n'), 0o644),
		os.WriteFile(filepath.Join(dir, "report.md"), []byte(r.Markdown()), 0o644),
	}
	for _, p := range plots {
		if err := p.save(dir); err != nil {
			errs = append(errs, fmt.Errorf("draw %s: %w", p.file, err))
		}
	}
	return errors.Join(errs...)
}
