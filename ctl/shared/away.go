package shared

import (
	"context"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/view"
)

// lookAtEtcdEvery is the time between two looks whether etcd answers.
const lookAtEtcdEvery = time.Second

// followAway looks whether etcd answers until ctx is done.
func (s *Shared) followAway(ctx context.Context) error {
	ticker := time.NewTicker(lookAtEtcdEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			s.lookAtEtcd()
		}
	}
}

// lookAtEtcd tells when etcd does not answer, and when it does again.
func (s *Shared) lookAtEtcd() {
	why := s.Desired.Away()
	s.Groups.Lock()
	defer s.Groups.Unlock()
	if was := s.toldAway; was == (why != nil) {
		return
	}
	s.toldAway = why != nil
	e := api.Event{Kind: api.StoreBack, Cause: "etcd answers"}
	if why != nil {
		e = api.Event{Kind: api.StoreAway, Cause: view.StoreAwayText(why)}
	}
	s.Groups.AddEvent(e)
}
