package image

import (
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// userSpace is the directory into which the packages of the guests were unpacked.
type userSpace struct {
	root  string
	byLib map[string]string // file name of a shared library -> path
}

// libraryDir is where the dynamic loader of the guest looks first.
const libraryDir = "lib/x86_64-linux-gnu"

// loaderPath is the interpreter that programs name.
const loaderPath = "lib64/ld-linux-x86-64.so.2"

// findUserSpace finds a part of the cache: that of a release of Debian, "13"; "" is that of this
// machine's apt sources.
func findUserSpace(cache, part, release, what string) (userSpace, error) {
	if release != "" {
		part, what = part+"-"+release, what+" of Debian "+release
	}
	u := userSpace{root: filepath.Join(cache, part), byLib: map[string]string{}}
	if err := prepared(u.root, what); err != nil {
		return userSpace{}, err
	}
	return u, filepath.WalkDir(u.root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && strings.Contains(entry.Name(), ".so") {
			u.byLib[entry.Name()] = path
		}
		return err
	})
}

// program puts an executable and its libraries into the archive. Its name in the guest is
// /usr/bin/name.
func (u userSpace) program(a *archive, name string) error {
	for _, dir := range []string{"usr/bin", "bin", "usr/sbin", "sbin"} {
		path := filepath.Join(u.root, dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return u.executable(a, filepath.Join("usr/bin", name), path)
		}
	}
	return fmt.Errorf("none of the guests' packages has a program %s", name)
}

// executable puts an ELF file and its libraries into the archive.
func (u userSpace) executable(a *archive, name, path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	a.file(name, content, 0o755)
	return u.libraries(a, path)
}

// libraries puts all libraries into the archive with which path is linked, directly or indirectly.
func (u userSpace) libraries(a *archive, path string) error {
	file, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	defer file.Close()
	needed, err := file.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	for _, library := range needed {
		if err := u.library(a, library); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(path), err)
		}
	}
	return nil
}

func (u userSpace) library(a *archive, name string) error {
	target := filepath.Join(libraryDir, name)
	if name == filepath.Base(loaderPath) {
		target = loaderPath
	}
	if a.have[target] {
		return nil
	}
	path, ok := u.byLib[name]
	if !ok {
		return fmt.Errorf("none of the guests' packages has the library %s", name)
	}
	return u.executable(a, target, path)
}

// tree puts a directory into the archive, under the name that it has in the packages, with the
// libraries of the plugins in it. without has the names of files and directories that stay away:
// whole, or up to their first dot.
func (u userSpace) tree(a *archive, dir string, without []string) error {
	return filepath.WalkDir(filepath.Join(u.root, dir), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		stem, _, _ := strings.Cut(entry.Name(), ".")
		switch omitted := slices.Contains(without, stem) || slices.Contains(without, entry.Name()); {
		case omitted && entry.IsDir():
			return filepath.SkipDir
		case omitted || !entry.Type().IsRegular():
			return nil
		}
		name, err := filepath.Rel(u.root, path)
		if err != nil {
			return err
		}
		if strings.HasSuffix(name, ".so") {
			return u.executable(a, name, path)
		}
		content, err := os.ReadFile(path)
		a.file(name, content, 0o644)
		return err
	})
}
