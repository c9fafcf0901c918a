package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	groupMode    = 0o660
	everyoneMode = 0o666
	asideSuffix  = ".new"
)

// ErrNotASocket is wrapped by the error of Listen if the path belongs to a file that is not a
// socket.
var ErrNotASocket = errors.New("a file that is not a socket has this name; remove it, or set socket: in the config")

// Listen opens the socket for root, for the daemon's user and for the group with the ID group; or
// for everyone, if the server decides who may read. The socket is created under a temporary name
// and then renamed, so it is never visible with a different mode. Listen replaces a socket that has
// no listener, which a crash leaves behind.
func Listen(path string, group int, everyone bool) (net.Listener, error) {
	mode := os.FileMode(groupMode)
	if everyone {
		mode = everyoneMode
	}
	l, err := listen(path, group, mode)
	if err != nil {
		return nil, fmt.Errorf("open the socket %s: %w", path, err)
	}
	return l, nil
}

func listen(path string, group int, mode os.FileMode) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if err := refuseLiving(path); err != nil {
		return nil, err
	}
	aside := path + asideSuffix
	if err := os.Remove(aside); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: aside, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if group != os.Getegid() { // chown(2) needs root, or membership in the group
		if err = os.Chown(aside, -1, group); errors.Is(err, os.ErrPermission) {
			err = fmt.Errorf("%w; the user of rocastd is not in the group that socketGroup: names: add SupplementaryGroups= to the unit", err)
		}
	}
	if err == nil {
		err = os.Chmod(aside, mode)
	}
	if err == nil {
		err = os.Rename(aside, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close()) // which removes aside
	}
	return &listener{Listener: l, path: path}, nil
}

// CheckSocket returns an error if the path of a socket cannot be used. It makes nothing.
func CheckSocket(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil && info.Mode().Type() != os.ModeSocket {
		err = ErrNotASocket
	}
	if err != nil {
		return fmt.Errorf("open the socket %s: %w", path, err)
	}
	return nil
}

// refuseLiving returns an error if a process answers on the socket, or if the path is not a socket.
func refuseLiving(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != os.ModeSocket {
		return ErrNotASocket
	}
	conn, err := net.Dial("unix", path)
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil
	}
	if err != nil {
		return err
	}
	conn.Close()
	return errors.New("another daemon answers on it; stop that daemon, or set socket: in the config")
}

// listener removes the socket's file when it closes.
type listener struct {
	net.Listener
	path string
}

func (l *listener) Close() error {
	err := os.Remove(l.path)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, l.Listener.Close())
}
