package image

import (
	"context"
	"errors"
	"path/filepath"
)

// MPI is one of the MPI libraries in the guests. Its name is behind the dot in the names of the
// programs that are built with it.
type MPI struct {
	Name     string
	Launcher []string // the beginning of a command line that starts a job over the guests' TCP
	headers  string   // directory
	library  string   // file name
	programs []string // its launcher, and what that starts on the other hosts
	trees    []string // directories: what it opens by name
	without  []string // plugins in them for NICs that no guest has, which need still more packages
}

// MPIs returns the libraries of a release of Debian, "13"; "" is Debian 12, or whatever release
// this machine's apt sources have.
func MPIs(hosts string) []MPI {
	openMPI := MPI{
		Name: "openmpi", headers: "usr/lib/x86_64-linux-gnu/openmpi/include", library: "libmpi.so.40",
		Launcher: []string{"orterun", "--mca", "btl", "tcp,self,vader", "--mca", "oob_tcp_if_include", "eth0"},
		programs: []string{"orterun", "orted"},
		trees:    []string{"usr/lib/x86_64-linux-gnu/openmpi/lib/openmpi3", "usr/lib/x86_64-linux-gnu/pmix2/lib/pmix", "usr/share/openmpi", "etc/openmpi"},
		without:  []string{"mca_btl_ofi.so", "mca_mtl_ofi.so", "mca_mtl_psm.so", "mca_mtl_psm2.so"},
	}
	if hosts == "13" { // Open MPI 5.0, whose launcher is PRRTE's
		openMPI.Launcher = []string{"mpirun.openmpi", "--mca", "btl", "tcp,self,sm", "--prtemca", "prte_if_include", "eth0"}
		openMPI.programs = []string{"mpirun.openmpi", "prterun", "prted"}
		openMPI.trees = []string{"usr/lib/x86_64-linux-gnu/pmix2", "usr/share/openmpi", "usr/share/prte", "etc/openmpi"}
	}
	return []MPI{openMPI, {
		Name: "mpich", headers: "usr/include/x86_64-linux-gnu/mpich", library: "libmpich.so.12",
		Launcher: []string{"mpiexec.hydra", "-launcher", "ssh", "-iface", "eth0"},
		programs: []string{"mpiexec.hydra", "hydra_pmi_proxy"},
	}}
}

// mpiPrograms are those of test/mpi, each with one source file of its name.
var mpiPrograms = []string{"check", "panel"}

// remoteShell is what both launchers take for ssh: it gives a command to the shell that listens on
// the other host. ShellPort is where.
const remoteShell = `#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
printf '%s\n' "$*" | busybox nc "$host" ` + ShellPort + `
`

// ShellPort is the TCP port of the shells, in decimal.
const ShellPort = "514"

// Preload is the path of librocast-mpi in the guest.
func (m MPI) Preload() string { return "/usr/" + libraryDir + "/librocast-mpi-" + m.Name + ".so" }

// packMPI adds the MPI libraries of a release of Debian, and for each of them librocast-mpi and the
// programs of test/mpi. base is the user space of all guests: it has the headers of libibverbs.
func packMPI(ctx context.Context, cache, hosts string, base userSpace, a *archive) error {
	u, err := findUserSpace(cache, "mpi", hosts, "the guests' MPI libraries")
	if err != nil {
		return err
	}
	source, err := sourceDir(ctx)
	if err != nil {
		return err
	}
	a.file("usr/bin/ssh", []byte(remoteShell), 0o755)
	a.file("etc/passwd", []byte("root:x:0:0:root:/:/bin/sh\n"), 0o644)
	for _, m := range MPIs(hosts) {
		err = errors.Join(err, m.pack(ctx, u, base, a, filepath.Join(cache, "build"), filepath.Dir(filepath.Dir(source))))
	}
	return err
}

// pack puts what a library has, and what is built with it, into the archive. root is the root of
// this repository.
func (m MPI) pack(ctx context.Context, u, base userSpace, a *archive, dir, root string) (err error) {
	for _, name := range m.programs {
		err = errors.Join(err, u.program(a, name))
	}
	for _, tree := range m.trees {
		err = errors.Join(err, u.tree(a, tree, m.without))
	}
	for _, name := range mpiPrograms {
		source := []string{filepath.Join(root, "test/mpi/programs", name+".c")}
		err = errors.Join(err, m.build(ctx, u, a, filepath.Join(dir, name+"."+m.Name), "usr/bin/"+name+"."+m.Name, source, "-pthread", "-lm"))
	}
	library, globErr := filepath.Glob(filepath.Join(root, "host/*.c"))
	interposer, mpiErr := filepath.Glob(filepath.Join(root, "host/mpi/*.c"))
	return errors.Join(err, globErr, mpiErr, m.build(ctx, u, a, filepath.Join(dir, filepath.Base(m.Preload())), m.Preload(),
		append(library, interposer...), "-shared", "-fPIC", "-fvisibility=hidden", "-isystem", filepath.Join(base.root, "usr/include"),
		u.byLib["libibverbs.so.1"]))
}

// build builds a program or a library with the MPI library, and puts it into the archive.
func (m MPI) build(ctx context.Context, u userSpace, a *archive, target, name string, sources []string, options ...string) error {
	library, found := u.byLib[m.library]
	if !found {
		return errors.New("none of the guests' packages has the library " + m.library)
	}
	options = append(options, "-Wl,--allow-shlib-undefined", library)
	if err := compile(ctx, target, sources, filepath.Join(u.root, m.headers), options...); err != nil {
		return err
	}
	return u.executable(a, name, target)
}
