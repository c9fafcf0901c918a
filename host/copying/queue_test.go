package copying

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
)

var errEmpty = errors.New("nothing is complete")

// fakeQueue completes what complete lists, and then nothing.
type fakeQueue struct {
	posts    []string
	complete []int // IDs
}

func (q *fakeQueue) PostSend(id uint64, message []byte) error {
	q.posts = append(q.posts, fmt.Sprint("send ", id, " ", string(message)))
	return nil
}

func (q *fakeQueue) PostRecv(id uint64, buffer []byte) error {
	q.posts = append(q.posts, fmt.Sprint("receive ", id, " ", len(buffer)))
	return nil
}

func (q *fakeQueue) Completion(context.Context) (uint64, int, error) {
	if len(q.complete) == 0 {
		return 0, 0, errEmpty
	}
	id := q.complete[0]
	q.complete = q.complete[1:]
	return uint64(id), 1 + id, nil
}

// A sender uses a buffer again when the message that was sent from it is complete, and Flush waits
// for all.
func TestASenderWaitsForItsBuffers(t *testing.T) {
	q := &fakeQueue{}
	s := NewSender(q, [][]byte{[]byte("a"), []byte("b")})
	sends := func(want string) {
		t.Helper()
		b, err := s.Buffer(t.Context())
		if err == nil {
			err = s.Send(t.Context(), b)
		}
		if string(b) != want || (want == "") != errors.Is(err, errEmpty) {
			t.Errorf("buffer %q, %v; want %q", b, err, want)
		}
	}
	sends("a")
	sends("b")
	sends("")
	q.complete = []int{0}
	sends("a")
	q.complete = []int{1}
	if err := s.Flush(t.Context()); !errors.Is(err, errEmpty) {
		t.Errorf("one of two messages is on its way, and Flush returns %v", err)
	}
	q.complete = []int{2}
	if err := s.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	if want := []string{"send 0 a", "send 1 b", "send 2 a"}; !slices.Equal(q.posts, want) {
		t.Errorf("posted %q, want %q", q.posts, want)
	}
}

// A receiver posts the buffer again that its caller had, and no other one.
func TestAnInboxPostsWhatWasRead(t *testing.T) {
	q := &fakeQueue{complete: []int{0, 1}}
	r := NewInbox(q, [][]byte{[]byte("abc"), []byte("defg")})
	for _, want := range []string{"a", "de", "", ""} {
		if b, err := r.Next(t.Context()); string(b) != want || (want == "") != errors.Is(err, errEmpty) {
			t.Errorf("%q, %v; want %q", b, err, want)
		}
	}
	if want := []string{"receive 0 3", "receive 1 4"}; !slices.Equal(q.posts, want) {
		t.Errorf("posted %q, want %q", q.posts, want)
	}
}
