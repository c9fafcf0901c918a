package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
)

// Whoever reaches the metrics may see the groups without their R_Keys, and change nothing.
func TestViewersOnlyLook(t *testing.T) {
	s, _ := newServer(t)
	if _, err := s.Control.Create(t.Context(), []byte(g1)); err != nil {
		t.Fatal(err)
	}
	ask := func(method, path string) (int, string) {
		answer := httptest.NewRecorder()
		s.Viewers().ServeHTTP(answer, httptest.NewRequest(method, path, nil))
		return answer.Code, answer.Body.String()
	}
	for path, want := range map[string]string{
		"/v1/traffic": `"name":"g1"`, "/v1/traffic/g1": `"ip":"10.77.0.2"`, "/v1/trees/g1": `"ip":"10.77.0.2"`,
	} {
		if status, answer := ask("GET", path); status != 200 || !strings.Contains(answer, want) || strings.Contains(answer, "rkey") {
			t.Errorf("GET %s: %d %s", path, status, answer)
		}
		for _, method := range []string{"POST", "PUT", "DELETE"} {
			if status, _ := ask(method, path); status != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d", method, path, status)
			}
		}
	}
	// The status quotes the line of the config that has a mistake.
	for _, path := range []string{"/v1/status", "/v1/groups", "/v1/groups/g1", "/v1/reload", "/v1/log", "/metrics", "/"} {
		if status, _ := ask("GET", path); status != http.StatusNotFound {
			t.Errorf("GET %s: %d", path, status)
		}
	}
	if status, answer := ask("GET", "/v1/traffic/none"); status != http.StatusNotFound || !strings.Contains(answer, "there is no group") {
		t.Errorf("%d %s", status, answer)
	}
}

// slowTree is a Control that says how long it may take to ask the boxes of a tree.
type slowTree struct {
	Control
	within chan time.Duration
}

func (s slowTree) Tree(ctx context.Context, name string) (api.Tree, error) {
	deadline, _ := ctx.Deadline()
	s.within <- time.Until(deadline)
	return s.Control.Tree(ctx, name)
}

// A browser does not wait for a box that does not answer.
func TestAViewerDoesNotWaitForSlowBoxes(t *testing.T) {
	s, _ := newServer(t)
	if _, err := s.Control.Create(t.Context(), []byte(g1)); err != nil {
		t.Fatal(err)
	}
	slow := slowTree{s.Control, make(chan time.Duration, 1)}
	s.Control = slow
	s.Viewers().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/v1/trees/g1", nil))
	if within := <-slow.within; within <= 0 || within > treeWithin {
		t.Errorf("the boxes of the tree may take %v", within)
	}
}
