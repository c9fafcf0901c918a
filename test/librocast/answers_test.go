// Package librocast tests the parts of librocast (host/) that need no RDMA device. The rest is
// tested on Soft-RoCE hosts: test/softroce/host_test.go.
package librocast

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// Another compiler may compile for another CPU, whose programs an emulator then runs.
var (
	compiler = flag.String("cc", "gcc", "the C `compiler`")
	emulator = flag.String("emulator", "", "the `command` that runs what it makes; default: this machine runs it")
)

// program compiles answers/main.c with the sanitizers.
func program(t *testing.T) string {
	t.Helper()
	return compile(t, "answers/main.c", "../../host/json.c", "../../host/box.c")
}

func compile(t *testing.T, sources ...string) string {
	t.Helper()
	return compileFor(t, "address,undefined", sources...)
}

// compileFor compiles for these sanitizers.
func compileFor(t *testing.T, sanitizers string, sources ...string) string {
	t.Helper()
	if _, err := exec.LookPath(*compiler); err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "answers")
	args := append([]string{"-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=" + sanitizers, "-fno-sanitize-recover=all",
		"-o", path}, sources...)
	out, err := exec.Command(*compiler, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

func run(t *testing.T, path, stdin string, args ...string) string {
	t.Helper()
	command := append(append(strings.Fields(*emulator), path), args...)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q with %q: %v\n%s", args, stdin, err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

const running = ` {"name":"g\"1\u00e4","state":"running","came":[],"qpn": 77 ,"memory":[{"va":"0x0","length":4096,"rkey":"0x40"}],` +
	`"members":[{"ip":"10.77.0.1","role":"source"},{"ip":"10.77.0.2","role":"receiver","port":7002}],"clearToSend":true}` + "\n"

func TestAnswersOfTheBox(t *testing.T) {
	path := program(t)
	for text, want := range map[string]string{
		running: "name g\"1? qpn 77 clear 1\nmember 10.77.0.1 port 0\nmember 10.77.0.2 port 7002",
		`{}`:    "name  qpn 0 clear 0",
		`{"name":"longer than the buffer","qpn":"0x10","clearToSend":false}`: "name longer than the qpn 16 clear 0",
		`{"inner":{"name":"x"},"name":"y"}`:                                  "name y qpn 0 clear 0",
		`[1,2]`:                                                              "name  qpn 0 clear 0",
		`{"name":}`:                                                          "invalid",
		`{"name":"a"} {}`:                                                    "invalid",
		`{"name" "a"}`:                                                       "invalid",
		`{name:1}`:                                                           "invalid",
		`[1,]`:                                                               "invalid",
		`"a\`:                                                                "invalid",
		"\"a\nb\"":                                                           "invalid",
		`<html>`:                                                             "invalid",
		strings.Repeat("[", 16) + strings.Repeat("]", 16): "name  qpn 0 clear 0",
		strings.Repeat("[", 17) + strings.Repeat("]", 17): "invalid",
		strings.Repeat(`{"members":[`, 9000):              "invalid",
	} {
		if got := run(t, path, text, "text"); got != want {
			t.Errorf("%.60q:\ngot  %q\nwant %q", text, got, want)
		}
	}
	// An answer that was cut off is not taken for a whole one, wherever the cut is.
	whole := strings.TrimSpace(running)
	for n := 1; n < len(whole); n += 3 {
		if got := run(t, path, whole[:n], "text"); got != "invalid" {
			t.Errorf("%q: %s", whole[:n], got)
		}
	}
}

func TestEndpoints(t *testing.T) {
	path := program(t)
	for text, want := range map[string]string{
		"10.77.0.254:7472": "10.77.0.254 7472", "[fd77::fe]:1": "fd77::fe 1", "fd77::fe:7472": "fd77::fe 7472",
		"10.77.0.254": "no endpoint", ":7472": "no endpoint", "10.77.0.254:0": "no endpoint", "10.77.0.254:65536": "no endpoint", "box:7472": "no endpoint",
		"10.77.0.254:7x": "no endpoint", "10.77.0.254:": "no endpoint", "[]:1": "no endpoint", strings.Repeat("1", 80) + ":1": "no endpoint",
	} {
		if got := run(t, path, "", "endpoint", text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// The library asks from the address that it is given, and gets answers of any size.
func TestQuestionsToTheBox(t *testing.T) {
	path := program(t)
	large := `{"reason":"` + strings.Repeat("x", 300000) + `"}`
	box := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		ip, _, _ := net.SplitHostPort(r.RemoteAddr)
		switch r.URL.Path {
		case "/large":
			fmt.Fprint(w, large)
		case "/cut":
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, `{"a":`)
		case "/huge":
			fmt.Fprintf(w, `"%s"`, strings.Repeat("x", 2<<20))
		case "/refused":
			http.Error(w, `{"error":{}}`, http.StatusForbidden)
		default:
			fmt.Fprintf(w, `["%s","%s","%s","%s",%s]`, r.Method, r.URL, ip, r.Header.Get("Content-Type"), body)
		}
	}))
	defer box.Close()
	at := strings.TrimPrefix(box.URL, "http://")
	for _, c := range []struct{ local, path, want string }{
		{"127.0.0.7", "/v1/hosts/g1?wait=1", `200 ["POST","/v1/hosts/g1?wait=1","127.0.0.7","application/json",{}]`},
		{"127.0.0.1", "/large", "200 " + large},
		{"127.0.0.1", "/refused", `403 {"error":{}}`},
		{"127.0.0.1", "/cut", "no answer: Connection reset by peer"},
		{"127.0.0.1", "/huge", "no answer: Message too long"},
		{"198.51.100.1", "/", "not asked: Cannot assign requested address"},
	} {
		if got := run(t, path, "", "ask", at, c.local, "POST", c.path, "{}"); got != c.want {
			t.Errorf("%s from %s: %.200s\nwant %.200s", c.path, c.local, got, c.want)
		}
	}
	if got := run(t, path, "", "ask", "127.0.0.1:1", "127.0.0.1", "POST", "/", "{}"); got != "no answer: Connection refused" && got != "not asked: Connection refused" {
		t.Error(got)
	}
}

// A member hears how its group is. An answer to a question of an earlier membership does not count,
// and a question that a box has taken with it when it died is asked again. A member knows the port
// of another one also when the box does not any more.
func TestAMemberWatchesItsGroup(t *testing.T) {
	sources, err := filepath.Glob("../../host/*.c")
	if err != nil {
		t.Fatal(err)
	}
	path := compile(t, append(sources, "watch/main.c", "-libverbs", "-Wl,--wrap=now_ms")...)
	var asked atomic.Int32
	box := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(body), `"regions":[]`) {
			t.Errorf("asked with %s", body)
		}
		n := asked.Add(1)
		if n == 1 {
			<-r.Context().Done() // until the member has left
		}
		fmt.Fprintf(w, `{"state":"running","version":"%d"}`, n)
	}))
	defer box.Close()
	if got := run(t, path, "", "return", strings.TrimPrefix(box.URL, "http://")); got != "2" {
		t.Errorf("the answer that counts is %s", got)
	}
	var answered atomic.Int32 // the box before may still answer a program that has ended
	members := []string{
		`{"ip":"127.0.0.2","port":7002},{"ip":"127.0.0.3","port":7003}`,
		`{"ip":"127.0.0.3"},{"ip":"127.0.0.4"},{"ip":"127.0.0.2"}`, // of a box that has started again
		`{"ip":"127.0.0.2","port":8002},{"ip":"127.0.0.3"}`,
	}
	ports := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"state":"running","members":[%s]}`, members[(answered.Add(1)-1)%3])
	}))
	defer ports.Close()
	if got := run(t, path, "", "ports", strings.TrimPrefix(ports.URL, "http://")); got != "7002 7003 7003 0 7002 8002 7003 in three answers" {
		t.Error(got)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if got := run(t, path, "", "silent", silent.Addr().String()); got != "given up after 25 s" {
		t.Error(got)
	}
}

// The room for completions of single connections grows with the group, up to what the device has. A
// member can have only as many connections as it needs, and one that takes none is named.
func TestSingleConnections(t *testing.T) {
	saysOf(t, "links/main.c", "-Wl,--wrap=ibv_create_cq,--wrap=ibv_destroy_cq,--wrap=ibv_create_qp", map[string]string{
		"grow": "4 in 1\n12 in 1\nno queue pair can be made (Cannot allocate memory)",
		"bound": "room for 9, 3 at once by each\n3 members are more than the device has single connections for: its queues hold 2 completions\n" +
			"group g1 has no other member that receives",
		"port":  "127.0.0.2 takes no single connections; its program has joined group g1 with without_fallback, or without this library",
		"crowd": "1 of a member, who is known",
	})
}

// The receivers of a group hear that its source has left: from the box, or by the end of its single
// connection, unless it calls them back to the group.
func TestTheSourceHasLeft(t *testing.T) {
	box := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"state":"ended","version":"e","reason":"10.77.0.1 has left, and group g1 has ended with it"}`)
	}))
	defer box.Close()
	t.Setenv("ROCAST_BOX", strings.TrimPrefix(box.URL, "http://"))
	const left = "failed 7, failed 9, -8 %[1]s has left, and group g1 has ended with it; -8 %[1]s has left, and group g1 has ended with it"
	saysOf(t, "source/main.c", "-Wl,--wrap=ibv_modify_qp,--wrap=ibv_destroy_qp", map[string]string{
		"ended":  fmt.Sprintf(left, "10.77.0.1"),
		"cut":    fmt.Sprintf(left, "127.0.0.2"),
		"called": "called back: 1, ended: 0",
		"both":   "called back: 0, ended: 0",
		"silent": "called back: 0, ended: 0",
	})
}

// A member that asks to become the source hears when its group fails meanwhile. When an operation
// has failed the program may change its bytes, so no connection reads them any more.
func TestTheWaysOfASourceFail(t *testing.T) {
	saysOf(t, "source/main.c", "-Wl,--wrap=ibv_modify_qp,--wrap=ibv_destroy_qp", map[string]string{
		"alone":    "-8 group g1 has no way to its members any more; leave it",
		"fallback": "0 unicast",
		"lost":     "failed, and 0 go on; the other member hears the end",
	})
}

// saysOf compiles a program with librocast, whose calls of libibverbs are wrapped, and compares
// what the program says of each thing with what it should say.
func saysOf(t *testing.T, program, wrapped string, wants map[string]string, more ...string) {
	t.Helper()
	sources, err := filepath.Glob("../../host/*.c")
	if err != nil {
		t.Fatal(err)
	}
	path := compile(t, append(append(sources, program, "-libverbs", wrapped), more...)...)
	for what, want := range wants {
		if got := run(t, path, "", what); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", what, got, want)
		}
	}
}

// The program in the header's first comment can be compiled as it stands, in C and in C++.
func TestTheProgramInTheHeader(t *testing.T) {
	header, err := os.ReadFile("../../host/rocast.h")
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(string(header), "*/\n#ifndef")
	var program strings.Builder
	program.WriteString("#include <err.h>\n#include \"rocast.h\"\nint main(void)\n{\n")
	lines := 0
	for line := range strings.Lines(text) {
		if code, ok := strings.CutPrefix(line, " *\t"); ok {
			program.WriteString("\t" + code)
			lines++
		}
	}
	program.WriteString("}\n")
	if lines < 20 {
		t.Fatalf("the program has %d lines:\n%s", lines, program.String())
	}
	for _, args := range [][]string{{"gcc", "-std=c11", "-x", "c"}, {"g++", "-std=c++20", "-x", "c++"}} {
		if _, err := exec.LookPath(args[0]); err != nil {
			t.Log(err)
			continue
		}
		cmd := exec.Command(args[0], append(args[1:], "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Werror", "-I", "../../host", "-fsyntax-only", "-")...)
		cmd.Stdin = strings.NewReader(program.String())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s\n%s", args, err, out, program.String())
		}
	}
}
