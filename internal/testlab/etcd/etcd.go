// Package etcd runs etcd for tests.
package etcd

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/internal/testlab/certs"
	"github.com/rocast/rocast/internal/testlab/netns"
)

// Cluster is an etcd whose members are processes of their own. They listen on loopback and end with
// the test.
type Cluster struct {
	members []*member
	tls     *tls.Config // of a client; nil: without TLS
}

type member struct {
	args   []string
	url    string
	log    bytes.Buffer
	cmd    *exec.Cmd // nil: it does not run
	exited chan struct{}
}

// addressSpace is what a member maps: its database alone takes 10 GiB (InitialMmapSize).
const addressSpace = 16 << 30

// Start starts a cluster and waits until it answers. It skips the test if etcd is not installed, or
// may not map its database.
func Start(t *testing.T, size int) *Cluster {
	t.Helper()
	return start(t, size, "http://127.0.0.1", nil)
}

// StartTLS starts a cluster that shows its clients a certificate of an authority, for localhost,
// and wants one of theirs. tls is that of a client.
func StartTLS(t *testing.T, size int, ca *certs.Authority, tls *tls.Config) *Cluster {
	t.Helper()
	cert, key, err := ca.Issue(t.TempDir(), time.Now().Add(certs.Lifetime), "localhost")
	if err != nil {
		t.Fatal(err)
	}
	return start(t, size, "https://localhost", tls, "--cert-file", cert, "--key-file", key, "--trusted-ca-file", ca.Path, "--client-cert-auth")
}

func start(t *testing.T, size int, host string, tls *tls.Config, args ...string) *Cluster {
	t.Helper()
	if _, err := exec.LookPath("etcd"); err != nil {
		t.Skip("etcd is not installed; apt-get install etcd-server")
	}
	var space unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &space); err != nil {
		t.Fatal(err)
	}
	if space.Cur < addressSpace {
		t.Skipf("etcd needs %d GiB of address space, and may have %d; ulimit -v unlimited", addressSpace>>30, space.Cur>>30)
	}
	c := &Cluster{tls: tls}
	dir := t.TempDir()
	ports := freePorts(t, 2*size)
	var peers []string
	for i := range size {
		peers = append(peers, fmt.Sprintf("m%d=http://127.0.0.1:%d", i, ports[2*i+1]))
	}
	for i := range size {
		client, peer := fmt.Sprintf("%s:%d", host, ports[2*i]), fmt.Sprintf("http://127.0.0.1:%d", ports[2*i+1])
		c.members = append(c.members, &member{url: client, args: append([]string{
			"--name", fmt.Sprintf("m%d", i), "--data-dir", filepath.Join(dir, fmt.Sprintf("m%d", i)),
			"--listen-client-urls", strings.Replace(client, "localhost", "127.0.0.1", 1), "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--initial-cluster", strings.Join(peers, ","),
			"--heartbeat-interval", "50", "--election-timeout", "500",
			"--unsafe-no-fsync", "--logger", "zap",
		}, args...)})
	}
	for i := range c.members {
		c.start(t, i)
	}
	t.Cleanup(func() {
		for i, m := range c.members {
			c.stop(i)
			if t.Failed() {
				t.Logf("etcd %d: %s", i, tail(m.log.String()))
			}
		}
	})
	c.wait(t)
	return c
}

// Endpoints returns the URLs of all members.
func (c *Cluster) Endpoints() (urls []string) {
	for _, m := range c.members {
		urls = append(urls, m.url)
	}
	return urls
}

// Reach makes the first member reachable in a network namespace, and returns its URL there.
func (c *Cluster) Reach(t *testing.T, in *netns.NS) (url string) {
	t.Helper()
	var l net.Listener
	if err := in.Do(func() (err error) { l, err = net.Listen("tcp", "127.0.0.1:0"); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	scheme, there, _ := strings.Cut(c.members[0].url, "://")
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", there)
			if err != nil {
				_ = from.Close()
				continue
			}
			go func() { _, _ = io.Copy(to, from); _ = to.Close() }()
			go func() { _, _ = io.Copy(from, to); _ = from.Close() }()
		}
	}()
	return scheme + "://" + l.Addr().String()
}

// Lines are those of rocastd.yaml with which a box in a network namespace has its groups in the
// cluster, and certificates of an authority for its API.
func (c *Cluster) Lines(t *testing.T, in *netns.NS, ca *certs.Authority, box string) string {
	t.Helper()
	cert, key, err := ca.Issue(t.TempDir(), time.Now().Add(certs.Lifetime), box)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("store: etcd\netcd: {endpoints: [%q], lease: 60s}\napi: {listen: \"0.0.0.0:7471\", cert: %s, key: %s, ca: %s}\n",
		c.Reach(t, in), cert, key, ca.Path)
}

// Kill ends a member with SIGKILL.
func (c *Cluster) Kill(t *testing.T, i int) {
	t.Helper()
	c.stop(i)
}

// Restart starts a member again that was killed, and waits until the cluster answers.
func (c *Cluster) Restart(t *testing.T, i int) {
	t.Helper()
	c.start(t, i)
	c.wait(t)
}

// Leader returns the index of the member that leads.
func (c *Cluster) Leader(t *testing.T) int {
	t.Helper()
	client := c.client(t)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for i, m := range c.members {
		status, err := client.Status(ctx, m.url)
		if err != nil {
			t.Fatal(err)
		}
		if status.Leader == status.Header.MemberId {
			return i
		}
	}
	t.Fatal("no member leads")
	return -1
}

func (c *Cluster) start(t *testing.T, i int) {
	t.Helper()
	m := c.members[i]
	m.cmd, m.exited = exec.Command("etcd", m.args...), make(chan struct{})
	m.cmd.Stdout, m.cmd.Stderr = &m.log, &m.log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func(cmd *exec.Cmd, exited chan<- struct{}) {
		_ = cmd.Wait() // it is killed
		close(exited)
	}(m.cmd, m.exited)
}

func (c *Cluster) stop(i int) {
	m := c.members[i]
	if m.cmd == nil {
		return
	}
	_ = m.cmd.Process.Kill() // it may have exited
	<-m.exited
	m.cmd = nil
}

// wait waits until the cluster has a leader and answers.
func (c *Cluster) wait(t *testing.T) {
	t.Helper()
	client := c.client(t)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		asking, cancel := context.WithTimeout(ctx, time.Second)
		_, err := client.Get(asking, "x")
		cancel()
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("etcd does not answer: %v", err)
		}
	}
}

func (c *Cluster) client(t *testing.T) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), TLS: c.tls, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// freePorts returns TCP ports that nothing listens on. The kernel gives none of them to a client:
// while a member is away, whoever tries to reach it would sooner or later have its port.
func freePorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	const first, most = 20000, 10000
	for tries := 0; len(ports) < n; tries++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(most)))
		if err != nil && tries < most {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

func tail(log string) string {
	const most = 4000
	return log[max(0, len(log)-most):]
}
