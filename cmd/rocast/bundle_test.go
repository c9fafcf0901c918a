package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// unpack returns the files of a bundle by name.
func unpack(t *testing.T, packed io.Reader) map[string]string {
	t.Helper()
	zipped, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(zipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		name, inside := strings.CutPrefix(header.Name, "rocast-bundle/")
		if !inside || files[name] != "" || header.Mode != 0o600 {
			t.Errorf("%s, mode %o", header.Name, header.Mode)
		}
		files[name] = string(text)
	}
}

// Keys of a group that occur nowhere else by chance.
const secretGroup = `name: g1
ip: 10.77.0.100
qpn: 1
mtu: 1024
memory: {va: 0xabcdef010000, rkey: 0x5ec2e701}
members:
  - {ip: 10.77.0.1, qpn: 17, psn: 1000, role: source}
  - {ip: 10.77.0.2, qpn: 18, psn: 5, regions: [{va: 0xabcdef020000, length: 4096, rkey: 0x5ec2e702}]}
  - {ip: 10.77.0.3, qpn: 19, psn: 5, regions: [{va: 0xabcdef030000, length: 4096, rkey: 0x5ec2e703}]}
`

var itsSecrets = []uint64{0xabcdef010000, 0x5ec2e701, 0xabcdef020000, 0x5ec2e702, 0xabcdef030000, 0x5ec2e703}

// Whatever is in a bundle, no R_Key, VA, private key or password is. The config that is read here
// has them all, as the journal might.
func TestABundleHasNoSecrets(t *testing.T) {
	d := startDaemon(t)
	file := filepath.Join(t.TempDir(), "g1.yaml")
	config := "etcd: {endpoints: [\"https://admin:it's@correct@hunter2@10.0.0.5:2379\"]}\n-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----\n"
	for _, n := range itsSecrets {
		config += fmt.Sprintf("# %#x %X 0X%X %d rkey=%#x,va\n", n, n, n, n, n)
	}
	d.config.state.File = filepath.Join(t.TempDir(), "rocastd.yaml")
	if err := errors.Join(os.WriteFile(file, []byte(secretGroup), 0o600), os.WriteFile(d.config.state.File, []byte(config), 0o600)); err != nil {
		t.Fatal(err)
	}
	d.must(t, "group", "create", "-f", file)
	d.every = time.Millisecond
	exit, packed, stderr := d.run("bundle", "-o", "-")
	if exit != exitOK {
		t.Fatalf("exit %d, %s", exit, stderr)
	}
	files := unpack(t, strings.NewReader(packed))
	for name, text := range files {
		lower := strings.ToLower(text)
		for _, n := range itsSecrets {
			if strings.Contains(lower, fmt.Sprintf("%x", n)) || strings.Contains(lower, fmt.Sprint(n)) {
				t.Errorf("%s has %#x", name, n)
			}
		}
		for _, word := range []string{"hunter2", "correct@", "mhccaqee"} {
			if strings.Contains(lower, word) {
				t.Errorf("%s has %s", name, word)
			}
		}
	}
	for name, want := range map[string]string{
		"groups/g1.json": `"rkey": "<r_key>"`, "status.json": `"healthy": true`, "ports.json": `"name": "eth3"`, "stats.json": `"counters"`,
		"events.json": `"group-created"`, "features.json": "multi-buffer", "version.json": "v0-test", "client-version.json": "v0-test",
		"groups.json": `"g1"`, "rocastd.yaml": "https://<credentials>@10.0.0.5:2379", "log.json": `"level"`, "perftest.json": "{", "cm.json": "{",
		"traffic.json": "{", "metrics.txt": "# HELP ", "doctor.json": `"check": "groups"`, "doctor.txt": "\nok ",
		"ip_-d_-s.txt": "LOOPBACK", "missing.txt": "ethtool-i_eth1.txt: ",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s does not have %s:\n%s", name, want, files[name])
		}
	}
	if text := files["rocastd.yaml"]; strings.Count(text, forRKey) != 15 || strings.Count(text, forVA) != 15 || !strings.Contains(text, "<private key>\n#") {
		t.Errorf("%s", text)
	}
}

// A problem may be that no daemon answers.
func TestABundleWithoutADaemon(t *testing.T) {
	d := &daemon{socket: filepath.Join(t.TempDir(), "s")}
	file := filepath.Join(t.TempDir(), "b.tar.gz")
	exit, stdout, _ := d.run("bundle", "-o", file)
	if exit != exitOK || !strings.HasPrefix(stdout, file+" has ") || !strings.Contains(stdout, "could not be collected") {
		t.Errorf("exit %d, %s", exit, stdout)
	}
	packed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	files := unpack(t, bytes.NewReader(packed))
	if !strings.Contains(files["missing.txt"], "version.json: no daemon answers on ") || strings.Contains(files["missing.txt"], "stats.json") || files["uname_-a.txt"] == "" {
		t.Errorf("%v\n%s", slices.Sorted(maps.Keys(files)), files["missing.txt"])
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
	exit, stdout, _ = d.run("bundle", "-o", file, "--json")
	if exit != exitUsage || !strings.Contains(stdout, "file exists; write another FILE with -o") {
		t.Errorf("over a file: exit %d, %s", exit, stdout)
	}
}

// A file that cannot be made is found before anything is asked for.
func TestABundleThatCannotBeWrittenCollectsNothing(t *testing.T) {
	d, bin := &daemon{socket: filepath.Join(t.TempDir(), "s")}, t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "uname"), []byte("#!/bin/sh\n: >\"${0%/*}/asked\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	exit, _, stderr := d.run("bundle", "-o", "/nosuch/b.tar.gz")
	if exit != exitUsage || !strings.Contains(stderr, "open /nosuch/b.tar.gz: no such file or directory; write another FILE with -o") {
		t.Errorf("exit %d, %s", exit, stderr)
	}
	if _, err := os.Stat(filepath.Join(bin, "asked")); err == nil {
		t.Error("the machine was asked")
	}
	if exit, _, stderr := d.run("bundle", "-o", "-"); exit != exitOK {
		t.Errorf("exit %d, %s", exit, stderr)
	}
	if _, err := os.Stat(filepath.Join(bin, "asked")); err != nil {
		t.Error("the machine was never asked, so the test finds nothing")
	}
}

func TestWhatABundleKeepsOfALongText(t *testing.T) {
	b := &bundle{a: &app{env: &env{stderr: io.Discard}}}
	b.add("long.txt", strings.Repeat("x", bundleMost)+"end", nil)
	if text := b.files[0].text; !strings.HasPrefix(text, "(3 bytes before this are left out)\nxxx") || !strings.HasSuffix(text, "xend") {
		t.Errorf("%.60q", text)
	}
	if _, err := runProgram(context.Background(), "false"); err == nil {
		t.Error("a program that fails is no error")
	}
	b.ports = []string{"enp1s0"}
	if got := b.about("a usb device\nmlx5_core 0000: up\nenp1s0: Link is Down\n"); got != "mlx5_core 0000: up\nenp1s0: Link is Down\n" {
		t.Errorf("%q", got)
	}
	if got := (secrets{7: forRKey, 70000: forVA}).hide("7 0x7 70000 0x11170 170000 a70000 07"); got != "7 <r_key> <va> <va> 170000 a70000 07" {
		t.Error(got)
	}
}
