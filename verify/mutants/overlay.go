package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// tryBroken runs test suites with a broken text in place of a file of the tree, and returns the
// test that notices. An empty file breaks nothing. The tree is not
// touched: the compiler is told to take the broken text instead.
func tryBroken(file, broken string, suites []suite) (noticed noticer, err error) {
	dir, err := os.MkdirTemp("", "rocast-mutant-")
	if err != nil {
		return noticer{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	files := map[string]string{}
	if file != "" {
		files[file] = broken
	}
	overlay, err := writeOverlay(dir, files)
	if err != nil {
		return noticer{}, err
	}
	for _, s := range suites {
		if noticed, err = s.run(dir, overlay); noticed != (noticer{}) || err != nil {
			return noticed, err
		}
	}
	return noticer{}, nil
}

// writeOverlay writes texts that take the place of files of the tree to dir, and the file that go
// build -overlay wants.
func writeOverlay(dir string, files map[string]string) (string, error) {
	replace := map[string]string{}
	for file, text := range files {
		original, err := filepath.Abs(file)
		if err != nil {
			return "", err
		}
		replace[original] = filepath.Join(dir, strings.ReplaceAll(file, "/", "-"))
		if err := os.WriteFile(replace[original], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}
