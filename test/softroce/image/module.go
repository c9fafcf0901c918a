package image

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// module is one kernel module, unpacked.
type module struct {
	name    string
	content []byte
}

// moduleSet finds modules of one kernel. The package has no modules.dep, because depmod writes it
// at installation. So the dependencies are read from the modules.
type moduleSet struct {
	paths   map[string]string // by the name in depends=, which has underscores
	builtin map[string]bool
	loaded  map[string]bool
	order   []module // of this call of load
}

func (k kernel) moduleSet() (*moduleSet, error) {
	set := &moduleSet{paths: map[string]string{}, builtin: map[string]bool{}, loaded: map[string]bool{}}
	return set, set.index(k.modules)
}

// load returns the modules of a list of moduleLists, and the modules that they depend on. A module
// stands behind its dependencies. Modules that are built into the kernel, and modules that an
// earlier call returned, are omitted.
func (s *moduleSet) load(ctx context.Context, names ...string) ([]module, error) {
	s.order = nil
	for _, name := range names {
		name, optional := strings.CutSuffix(name, "?")
		if optional && s.paths[name] == "" {
			continue
		}
		if err := s.add(ctx, name); err != nil {
			return nil, err
		}
	}
	return s.order, nil
}

func (s *moduleSet) index(dir string) error {
	builtin, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return err
	}
	for _, path := range strings.Fields(string(builtin)) {
		s.builtin[moduleName(path)] = true
	}
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && strings.Contains(entry.Name(), ".ko") {
			s.paths[moduleName(path)] = path
		}
		return err
	})
}

func moduleName(path string) string {
	name, _, _ := strings.Cut(filepath.Base(path), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

func (s *moduleSet) add(ctx context.Context, name string) error {
	if s.builtin[name] || s.loaded[name] {
		return nil
	}
	s.loaded[name] = true
	path, ok := s.paths[name]
	if !ok {
		return fmt.Errorf("the kernel package has no module %s", name)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if content, err = decompress(ctx, content); err != nil {
		return fmt.Errorf("unpack %s: %w", path, err)
	}
	dependencies, err := dependsOf(content)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	for _, dependency := range dependencies {
		if err := s.add(ctx, dependency); err != nil {
			return err
		}
	}
	s.order = append(s.order, module{name, content})
	return nil
}

// dependsOf reads "depends=a,b" from the .modinfo of a module, which is a list of strings that end
// with NUL.
func dependsOf(content []byte) ([]string, error) {
	file, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	section := file.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("no .modinfo section")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for _, line := range strings.Split(string(info), "\x00") {
		if list, ok := strings.CutPrefix(line, "depends="); ok && list != "" {
			return strings.Split(strings.ReplaceAll(list, "-", "_"), ","), nil
		}
	}
	return nil, nil
}
