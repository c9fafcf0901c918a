package page

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func get(path string) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, Handler())
	mux.ServeHTTP(answer, httptest.NewRequest("GET", path, nil))
	return answer
}

func TestThePageAndItsFiles(t *testing.T) {
	for path, kind := range map[string]string{"/ui/": "text/html", "/ui/page.js": "text/javascript", "/ui/page.css": "text/css"} {
		answer := get(path)
		h := answer.Header()
		if answer.Code != 200 || !strings.HasPrefix(h.Get("Content-Type"), kind) || h.Get("Content-Security-Policy") != policy ||
			h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %v", path, answer.Code, h)
		}
	}
	if answer := get("/ui"); answer.Code != http.StatusMovedPermanently && answer.Code != http.StatusTemporaryRedirect || answer.Header().Get("Location") != Path {
		t.Errorf("/ui: %d %v", answer.Code, answer.Header())
	}
	for _, path := range []string{"/ui/page.go", "/ui/../page.go", "/ui/none"} {
		if answer := get(path); answer.Code == 200 {
			t.Errorf("%s is served", path)
		}
	}
}

// What the policy forbids does not work in a browser: code and styles in the page itself, and files
// of other hosts. Names that come from users must not become HTML.
func TestThePageKeepsItsPolicy(t *testing.T) {
	html, js := get("/ui/").Body.String(), get("/ui/page.js").Body.String()
	forbidden := regexp.MustCompile(`(?i)<script>|<style|\son\w+=|style=|https?://|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(`)
	for _, text := range []string{html, strings.ReplaceAll(js, `"http://www.w3.org/2000/svg"`, "")} {
		if found := forbidden.FindString(text); found != "" {
			t.Errorf("there is %q", found)
		}
	}
	// Each element that the code looks for exists.
	for _, id := range regexp.MustCompile(`(?:\$|rows)\("(\w+)"`).FindAllStringSubmatch(js, -1) {
		if !strings.Contains(html, `id="`+id[1]+`"`) {
			t.Errorf("there is no element %s", id[1])
		}
	}
}
