package softcast

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/host/copying/program"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
)

// hostWord is the first argument with which a program of a Lab is rocast-cp of a host.
const hostWord = "rocast-cp"

// BeHost is rocast-cp of a host, and ends the process with its exit status, if Arguments were those
// of the process. A program that has a Lab calls it before anything else.
func BeHost() {
	if len(os.Args) < 2 || os.Args[1] != hostWord {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	env := &program.Environment{Transport: Transport{}, In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv}
	status := env.Execute(ctx, env.Command("of a lab"), os.Args[2:])
	stop()
	os.Exit(status)
}

// Arguments are the arguments with which this program is rocast-cp of a host with args.
func Arguments(args ...string) []string { return append([]string{hostWord}, args...) }

// Lab is hosts without NICs of their own around a box whose rocastd lets hosts make groups.
type Lab struct{ *boxes.Single }

// HostsPort is the port of hosts: listen.
const HostsPort = 7472

// Open builds a lab; rocastd is the path of the program. Close removes it.
func Open(ctx context.Context, rocastd string, o bed.Options) (_ *Lab, err error) {
	l := &Lab{&boxes.Single{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	o.NoRNIC = true
	if l.Bed, err = bed.New(o); err != nil {
		return nil, err
	}
	config := boxes.Ports(l.Ports()...) + fmt.Sprintf("hosts: {listen: \"%s\", groupIPs: [\"%v\"]}\n", l.box(), l.GroupIP())
	if l.Daemon, err = boxes.NewDaemon(rocastd, config); err != nil {
		return nil, err
	}
	return l, l.Daemon.Start(ctx, l.Box)
}

func (l *Lab) box() string { return fmt.Sprintf("%v:%d", l.IP(), HostsPort) }

// Environ is the environment of a host's programs, which names the box.
func (l *Lab) Environ() []string { return append(os.Environ(), program.BoxVariable+"="+l.box()) }

// Sums are the names and the SHA-256 of all files below a directory, or of a file.
func Sums(root string) (list []byte, err error) {
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		h := sha256.New()
		if _, err := io.Copy(h, f); err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		list = fmt.Appendf(list, "%x %s\n", h.Sum(nil), name)
		return err
	})
	return list, err
}
