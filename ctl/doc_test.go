package ctl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A newcomer finds each file by what it is about.
func TestTheDocumentationNamesEachFile(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	files, errFiles := filepath.Glob("*.go")
	if err != nil || errFiles != nil {
		t.Fatal(err, errFiles)
	}
	for _, name := range files {
		if !strings.HasSuffix(name, "_test.go") && name != "doc.go" && !strings.Contains(string(text), name) {
			t.Errorf("doc.go does not say what %s is about", name)
		}
	}
}
