package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// loadModules loads the files that list names, one in each line. A module stands behind the modules
// that it depends on.
func loadModules(list string) error {
	text, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	for _, path := range strings.Fields(string(text)) {
		if err := loadModule(path); err != nil {
			return fmt.Errorf("load %s: %w", path, err)
		}
	}
	return nil
}

func loadModule(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	err = unix.FinitModule(int(file.Fd()), "", 0)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}
