// Package page is a page that shows the groups, for a browser: /ui. It only reads, and asks the API
// beside it.
package page

import (
	"embed"
	"net/http"
)

// Path is where the page is.
const Path = "/ui/"

//go:embed index.html page.css page.js
var files embed.FS

// policy lets the page load its own files and ask the box that it came from, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Handler serves the page under Path.
func Handler() http.Handler {
	serve := http.StripPrefix(Path, http.FileServerFS(files))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		serve.ServeHTTP(w, r)
	})
}
