// Package watch tests what an operator sees when something breaks: the faults of
// docs/troubleshoot.md, the alert rules that are shipped, in a real Prometheus that scrapes a real
// rocastd, and the page in a real browser.
//
// Prometheus and Chromium are large: only make watch, which installs them, runs the tests that need
// them.
package watch
