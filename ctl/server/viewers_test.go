package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
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
