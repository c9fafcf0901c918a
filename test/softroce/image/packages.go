package image

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The programs of a user of librocast, by their names in the guest.
const (
	CopyProgram = "rocast-cp"
	Python      = "python3"
)

// withoutPython are parts of Python's library that need still more packages, or much room, and
// that no program of a guest imports.
var withoutPython = []string{
	"test", "lib2to3", "pydoc_data", "distutils", "ensurepip", "unittest", "xmlrpc", "wsgiref", "tkinter", "idlelib", "turtledemo", "__pycache__",
	"_ssl", "_hashlib", "_sqlite3", "_curses", "_curses_panel", "_dbm", "_gdbm", "_tkinter", "_uuid", "_crypt", "nis", "readline", "ossaudiodev", "_lzma", "_bz2",
}

// packPackages adds what the packages librocast and python3-rocast install, built by the scripts
// that build these, and Python. base is the user space of all guests, of this release of Debian.
func packPackages(ctx context.Context, cache, hosts string, base userSpace, a *archive) error {
	u, err := findUserSpace(cache, "python", hosts, "the guests' Python")
	if err != nil {
		return err
	}
	source, err := sourceDir(ctx)
	if err != nil {
		return err
	}
	root := filepath.Dir(filepath.Dir(source))
	build := filepath.Join(cache, "build")
	program := filepath.Join(build, CopyProgram)
	const library = "librocast.so.0"
	err = errors.Join(base.script(ctx, root, "packaging/librocast", build), base.script(ctx, root, "packaging/rocast-cp", build, program, "lab", "none"))
	if err != nil {
		return err
	}
	return errors.Join(base.executable(a, "usr/bin/"+CopyProgram, program), base.executable(a, "usr/"+libraryDir+"/"+library, filepath.Join(build, library)),
		u.python(a), packModule(a, filepath.Join(root, "host/python/rocast")))
}

// script runs a script that builds with the libraries of the guests.
func (u userSpace) script(ctx context.Context, root string, command ...string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = root
	cc := []string{"gcc", "-isystem", filepath.Join(u.root, "usr/include"), "-L" + filepath.Join(u.root, "usr", libraryDir), "-Wl,--allow-shlib-undefined"}
	cmd.Env = append(os.Environ(), "CC="+strings.Join(cc, " "), "GOFLAGS=")
	return run(cmd)
}

// python adds the interpreter and its library.
func (u userSpace) python(a *archive) error {
	interpreter, err := onlyMatch(filepath.Join(u.root, "usr/bin/python3.[0-9][0-9]"))
	if err != nil {
		return err
	}
	library := filepath.Join("usr/lib", filepath.Base(interpreter))
	return errors.Join(u.executable(a, "usr/bin/"+Python, interpreter), u.tree(a, library, withoutPython))
}

// packModule adds the package rocast for Python, where Debian's package has it.
func packModule(a *archive, dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".py" {
			return err
		}
		content, err := os.ReadFile(path)
		a.file("usr/lib/python3/dist-packages/rocast/"+filepath.Base(path), content, 0o644)
		return err
	})
}
