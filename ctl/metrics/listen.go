package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/bounds"
	"github.com/rocast/rocast/ctl/logs"
)

// Limits for one client. A scraper asks every few seconds and reads fast.
const (
	requestWithin  = 10 * time.Second
	answerWithin   = 20 * time.Second
	idleWithin     = 2 * time.Minute
	maxHeaderBytes = 16 << 10
	// mostOfAnAddress bounds the connections from one address, and mostOfAll those from all. A
	// further one takes the place of the oldest of its address, or of the address with the most.
	mostOfAnAddress = 32
	mostOfAll       = 256
)

// openAgainAfter is the time between two tries to open a listener.
const openAgainAfter = 5 * time.Second

// Listener serves the metrics over TCP.
type Listener struct {
	At      netip.AddrPort
	Handler http.Handler
	Log     *zap.Logger
	Bounds  *bounds.Book
	again   time.Duration // tests shorten it; 0: openAgainAfter
}

// Serve answers until ctx is done. Groups matter more than metrics: a listener that cannot be
// opened is logged once and tried again, and no error ends the daemon.
func (l *Listener) Serve(ctx context.Context) {
	if l.again == 0 {
		l.again = openAgainAfter
	}
	for said := false; ctx.Err() == nil; {
		conns, err := new(net.ListenConfig).Listen(ctx, "tcp", l.At.String())
		if err == nil {
			l.Log.Info("metrics are served", zap.Stringer("listen", l.At))
			said = false
			err = l.serve(ctx, conns)
		}
		switch {
		case err == nil || ctx.Err() != nil:
		case said:
			l.Log.Debug("metrics cannot be served yet", zap.Stringer("listen", l.At), zap.Error(err))
		default:
			l.Log.Error("metrics cannot be served; rocastd carries groups without them and tries again; "+
				"end the program that has the port, or write another metrics: into the config",
				zap.Stringer("listen", l.At), zap.Error(err))
			said = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(l.again):
		}
	}
}

func (l *Listener) serve(ctx context.Context, conns net.Listener) error {
	s := &http.Server{
		Handler: named(l.At, l.Handler), ReadTimeout: requestWithin, WriteTimeout: answerWithin, IdleTimeout: idleWithin,
		MaxHeaderBytes: maxHeaderBytes, ErrorLog: logs.ForHTTP(l.Log),
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(&newest{Listener: conns, met: l.Bounds}); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// named refuses requests for another host, if the listener is reached only from this machine. A web
// site could otherwise let its own name lead to the listener (DNS rebinding), and the browser of
// somebody on this machine would give the site the answers.
func named(at netip.AddrPort, next http.Handler) http.Handler {
	if !at.Addr().IsLoopback() {
		return next // whoever reaches it may read
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !api.IsAddress(r.Host) {
			answer(w, http.StatusMisdirectedRequest, fmt.Sprintf("%.80q is not a name of this listener; ask http://%v\n", r.Host, at))
			return
		}
		next.ServeHTTP(w, r)
	})
}
