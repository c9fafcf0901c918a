// Package watch tests what an operator sees when a cable is cut: the alert rules that are shipped,
// in a real Prometheus that scrapes a real rocastd, and the page in a real browser.
//
// Prometheus and Chromium are large: only make watch, which installs them, runs these tests.
package watch
