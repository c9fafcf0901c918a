package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// VerbsProgram is the name of the program in ../verbs inside a guest.
const VerbsProgram = "rocast-verbs"

// HostProgram is the name of the program in ../host, which uses the library in host/.
const HostProgram = "rocast-host"

// RDMACMProgram is the name of the program in ../rdmacm.
const RDMACMProgram = "rocast-rdmacm"

// Image is what QEMU boots.
type Image struct {
	Series    string // of the kernel, "6.1"; or the release of Debian, "bookworm"
	Vmlinux   string // path of the uncompressed kernel
	Initramfs string // path
	Disk      string // path; "": everything is in the initramfs
	NeedsCX16 bool   // programs in it use the CPU's instruction CMPXCHG16B without asking for it
}

// Parts say what an image consists of.
type Parts struct {
	Kernel string // series, such as "6.1"
	Hosts  string // the release of Debian of the user space, "13"; "": that of this machine
	MPI    bool   // both MPI libraries too

	// Packages: what the packages librocast and python3-rocast have, and Python.
	Packages bool
}

// Build makes the image of hosts in the cache directory.
func Build(ctx context.Context, p Parts) (Image, error) {
	image, err := build(ctx, p)
	if err != nil {
		return Image{}, fmt.Errorf("build guest image: %w", err)
	}
	return image, nil
}

func build(ctx context.Context, p Parts) (Image, error) {
	name := "initramfs"
	if p.Hosts != "" {
		name += "-" + p.Hosts
	}
	cache, err := cacheDir()
	if err != nil {
		return Image{}, err
	}
	k, err := findKernel(cache, p.Kernel)
	if err != nil {
		return Image{}, err
	}
	unlock, err := lock(cache)
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	u, err := findUserSpace(cache, "root", p.Hosts, "the guests' user space")
	if err != nil {
		return Image{}, err
	}
	built, err := buildPrograms(ctx, cache, u)
	if err != nil {
		return Image{}, err
	}
	vmlinux, err := k.vmlinux(ctx)
	if err != nil {
		return Image{}, err
	}
	a, err := pack(ctx, k, u, built)
	if err != nil {
		return Image{}, err
	}
	image := Image{Series: p.Kernel, Vmlinux: vmlinux}
	if p.MPI {
		name += "-mpi"
		image.NeedsCX16 = p.Hosts == "13" // Open MPI 5.0
		if err := packMPI(ctx, cache, p.Hosts, u, a); err != nil {
			return Image{}, err
		}
	}
	if p.Packages {
		name += "-packages"
		if err := packPackages(ctx, cache, p.Hosts, u, a); err != nil {
			return Image{}, err
		}
	}
	image.Initramfs = filepath.Join(k.dir, name+".cpio")
	return image, writeFile(image.Initramfs, a.bytes())
}

// programs are the paths of this repository's programs that run in a guest.
type programs struct{ agent, verbs, rdmacm, host string }

func buildPrograms(ctx context.Context, cache string, u userSpace) (programs, error) {
	source, err := sourceDir(ctx)
	if err != nil {
		return programs{}, err
	}
	dir := filepath.Join(cache, "build")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return programs{}, err
	}
	verbs, err := filepath.Glob(filepath.Join(source, "verbs", "*.c"))
	if err != nil {
		return programs{}, err
	}
	rdmacm := []string{filepath.Join(source, "rdmacm", "main.c"), filepath.Join(source, "verbs", "sha256.c")}
	library, err := filepath.Glob(filepath.Join(source, "..", "..", "host", "*.c"))
	if err != nil {
		return programs{}, err
	}
	host := []string{filepath.Join(source, "host", "main.c")}
	for _, name := range []string{"command.c", "report.c", "sha256.c"} {
		host = append(host, filepath.Join(source, "verbs", name))
	}
	built := programs{
		agent: filepath.Join(dir, "agent"), verbs: filepath.Join(dir, VerbsProgram), rdmacm: filepath.Join(dir, RDMACMProgram), host: filepath.Join(dir, HostProgram),
	}
	return built, errors.Join(buildAgent(ctx, source, built.agent),
		buildC(ctx, u, built.verbs, verbs, "-libverbs"),
		buildC(ctx, u, built.rdmacm, rdmacm, "-lrdmacm", "-libverbs"),
		buildC(ctx, u, built.host, append(host, library...), "-libverbs", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-static-libasan", "-static-libubsan"))
}

// sourceDir is test/softroce of this repository. The caller may run in any directory of it.
func sourceDir(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "github.com/rocast/rocast/test/softroce").Output()
	if err != nil {
		return "", fmt.Errorf("find test/softroce: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

func buildAgent(ctx context.Context, source, target string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", target, "./agent")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	return run(cmd)
}

// buildC compiles against libraries of the guests. The other libraries that these need are found in
// the guest.
func buildC(ctx context.Context, u userSpace, target string, sources []string, libraries ...string) error {
	link := append([]string{"-L" + filepath.Join(u.root, "usr", libraryDir), "-Wl,--allow-shlib-undefined"}, libraries...)
	return compile(ctx, target, sources, filepath.Join(u.root, "usr/include"), link...)
}

// compile makes a program, with all warnings as errors.
func compile(ctx context.Context, target string, sources []string, headers string, link ...string) error {
	args := []string{
		"-std=c11", "-D_GNU_SOURCE", "-O2", "-g0", "-Wall", "-Wextra", "-Werror", "-Wshadow", "-Wconversion",
		"-Wno-sign-conversion", "-o", target, "-isystem", headers,
	}
	return run(exec.CommandContext(ctx, "gcc", append(append(args, sources...), link...)...))
}

func run(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}
