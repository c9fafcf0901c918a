package copying

import "context"

// Queue is a queue pair in a group, as a Sender and an Inbox need it. Completions come in the order
// of the posts.
type Queue interface {
	PostSend(id uint64, message []byte) error
	PostRecv(id uint64, buffer []byte) error
	// Completion waits for the next one. bytes is the length of a message that has arrived.
	Completion(ctx context.Context) (id uint64, bytes int, err error)
}

// NewSender returns a Sender that sends from these buffers, one after the other.
func NewSender(q Queue, buffers [][]byte) Sender { return &sender{queue: q, buffers: buffers} }

type sender struct {
	queue             Queue
	buffers           [][]byte
	posted, completed int
}

func (s *sender) Buffer(ctx context.Context) ([]byte, error) {
	if err := s.await(ctx, len(s.buffers)-1); err != nil {
		return nil, err
	}
	return s.buffers[s.posted%len(s.buffers)], nil
}

func (s *sender) Send(_ context.Context, message []byte) error {
	err := s.queue.PostSend(uint64(s.posted), message)
	if err == nil {
		s.posted++
	}
	return err
}

func (s *sender) Flush(ctx context.Context) error { return s.await(ctx, 0) }

// await waits until at most so many messages are on their way.
func (s *sender) await(ctx context.Context, most int) error {
	for s.posted-s.completed > most {
		if _, _, err := s.queue.Completion(ctx); err != nil {
			return err
		}
		s.completed++
	}
	return nil
}

// NewInbox returns an Inbox that receives into these buffers, each of which is posted already with
// its index as the ID.
func NewInbox(q Queue, buffers [][]byte) Inbox { return &inbox{queue: q, buffers: buffers, lent: -1} }

type inbox struct {
	queue   Queue
	buffers [][]byte
	lent    int // the buffer that the caller has; -1: none
}

func (r *inbox) Next(ctx context.Context) ([]byte, error) {
	if r.lent >= 0 {
		if err := r.queue.PostRecv(uint64(r.lent), r.buffers[r.lent]); err != nil {
			return nil, err
		}
		r.lent = -1
	}
	id, bytes, err := r.queue.Completion(ctx)
	if err != nil {
		return nil, err
	}
	r.lent = int(id)
	return r.buffers[r.lent][:bytes], nil
}
