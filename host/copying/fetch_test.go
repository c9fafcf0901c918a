package copying

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A giver ends the connection when nothing is taken for long. Whose own disk stood still blames
// nobody, and gets the file elsewhere: also where nothing had come on the connection yet.
func TestWhoseOwnDiskStandsStill(t *testing.T) {
	for name, stall := range map[string]time.Duration{"long": peerPatience + time.Second, "for a moment": peerPatience - time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				content := random(16 * BlockBytes)
				giver := gives(t, content)
				var dialled []string
				writes := 0
				came, why := fetchedBy(t, func(target *Target, x *batch) {
					x.promises[0] = promise{givers: []string{"127.0.0.1:1", "127.0.0.1:2"}, sum: x.promises[0].sum}
					target.write = func(f *os.File, b []byte, at int64) (int, error) {
						if writes++; writes == 3 {
							time.Sleep(stall)
						}
						return f.WriteAt(b, at)
					}
				}, func(_ context.Context, address string) (net.Conn, error) {
					dialled = append(dialled, address)
					near, far := pipe()
					serving(t, giver, far)
					return near, nil
				}, content)
				if want := 1 + int(stall/peerPatience); came != 1 || why != "" || len(dialled) != want {
					t.Errorf("%d files came, %q; asked %q", came, why, dialled)
				}
			})
		})
	}
}

// A giver that says nothing afterwards is to blame all the same.
func TestWhoseOwnDiskStoodStillBlamesWhoIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		content := random(BlockBytes)
		_, why := fetchedTo(t, func(target *Target, _ *batch) {
			target.write = func(f *os.File, b []byte, at int64) (int, error) {
				time.Sleep(peerPatience)
				return f.WriteAt(b, at)
			}
		}, func(far net.Conn) {
			_, _ = far.Write(aBlock(0, content[:BlockBytes/2]))
			time.Sleep(time.Hour)
		}, content)
		if !strings.Contains(why, "fallen") {
			t.Error(why)
		}
		time.Sleep(2 * time.Hour)
	})
}

// Who ends the connection inside a file while this host reads is not asked again.
func TestAGiverThatEndsInsideAFile(t *testing.T) {
	for name, content := range map[string][]byte{"in a block": random(100), "in a header": nil} {
		_, why := fetchedTo(t, func(*Target, *batch) {}, func(far net.Conn) {
			_, _ = far.Write(aBlock(0, content)[:6+len(content)/2])
			_ = far.Close()
		}, random(100))
		if why != "unexpected EOF" {
			t.Errorf("%s: %q", name, why)
		}
	}
}

// A giver that cannot read its own file, or says nothing, is waited for about as long however large
// a unit of the file is.
func TestAGiverOfAHugeFileThatSaysNothing(t *testing.T) {
	for _, size := range []int64{1 << 20, 100 << 30, 1 << 40} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			_, why := fetchedTo(t, func(_ *Target, x *batch) {
				x.entries[0].Size = size
				x.claims = map[int]claim{0: {Units: make([]sum, 1)}}
			}, func(net.Conn) { time.Sleep(time.Hour) }, nil)
			if took := time.Since(begin); took < peerPatience || took > 20*time.Second || !strings.Contains(why, "fallen") {
				t.Errorf("%d GiB: %v, %q", size>>30, took, why)
			}
			time.Sleep(2 * time.Hour)
		})
	}
}

// A giver that is behind the asker says so after a while, batch by batch. What it waits for counts
// for nothing, once in each batch.
func TestAGiverIsLateInEachBatch(t *testing.T) {
	for waits, blamed := range map[int]bool{1: false, 2: true} {
		synctest.Test(t, func(t *testing.T) {
			var r *Receiver
			for n := range 4 {
				_, why := fetchedOf(t, &r, func(*Target, *batch) {}, func(context.Context, string) (net.Conn, error) {
					near, far := pipe()
					go func() {
						defer far.Close()
						go func() { _, _ = io.Copy(io.Discard, far) }()
						for i := range 2 {
							if i < waits {
								time.Sleep(soon)
							}
							_, _ = far.Write(binary.BigEndian.AppendUint32(numbers(0), ungiven))
						}
						time.Sleep(time.Hour)
					}()
					return near, nil
				}, []byte("f"), []byte("g"))
				if (why != "") != (blamed && n > 0) && n < 2 {
					t.Errorf("waits %d times, batch %d: %q", waits, n, why)
				}
			}
			time.Sleep(2 * time.Hour)
		})
	}
}

// Who cannot be connected to is not called slow.
func TestAGiverThatTakesNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, why := fetchedBy(t, func(*Target, *batch) {}, func(ctx context.Context, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, []byte("f"))
		if why != "timeout: it has taken no connection" {
			t.Error(why)
		}
	})
}

// evictedConn is a connection whose refusal comes late: after whoever served it has ended.
type evictedConn struct {
	net.Conn
	served chan struct{}
}

func (c *evictedConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1} }

func (c *evictedConn) SetWriteDeadline(at time.Time) error {
	if c.served != nil {
		<-c.served
	}
	return c.Conn.SetWriteDeadline(at)
}

func (c *evictedConn) Read(b []byte) (n int, err error) {
	if n, err = c.Conn.Read(b); c.served != nil {
		time.AfterFunc(time.Second, sync.OnceFunc(func() { close(c.served) }))
	}
	return n, err
}

// An honest connection that makes room for others hears that nothing is given, also if its request
// comes before the refusal goes: it blames nobody.
func TestWhoMakesRoomHearsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{calls: make(chan net.Conn), closed: make(chan struct{})}
		giver := gives(t, []byte("f"))
		giver.Peers = p
		ctx, cancel := context.WithCancel(t.Context())
		giver.tasks.Go(func() { giver.serve(ctx) })
		var others []net.Conn
		_, why := fetchedBy(t, func(*Target, *batch) {}, func(context.Context, string) (net.Conn, error) {
			near, far := pipe()
			p.calls <- &evictedConn{far, make(chan struct{})}
			for range maxOfAnAddress { // a program of the same host
				other, end := pipe()
				others = append(others, other)
				p.calls <- &evictedConn{end, nil}
			}
			synctest.Wait()
			return near, nil
		}, []byte("f"))
		if why != "" {
			t.Error(why)
		}
		cancel()
		for _, c := range others {
			_ = c.Close()
		}
		_ = p.Close()
		giver.tasks.Wait()
	})
}

// Those that lack the same files do not all ask the same one first, and then the next one together.
func TestAskersDoNotMoveTogether(t *testing.T) {
	firsts := map[string]bool{}
	for range 16 {
		asked := ""
		_, _ = fetchedBy(t, func(_ *Target, x *batch) {
			for i := range x.entries {
				x.promises[i] = promise{givers: []string{fmt.Sprint("127.0.0.1:", 1+i)}, sum: x.promises[i].sum}
			}
		}, func(_ context.Context, address string) (net.Conn, error) {
			if asked == "" {
				asked = address
			}
			return nil, errors.New("no")
		}, []byte("e"), []byte("f"), []byte("g"), []byte("h"))
		firsts[asked] = true
	}
	if len(firsts) < 2 {
		t.Errorf("all ask %v first", firsts)
	}
}
