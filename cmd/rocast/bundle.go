package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/config"
	"github.com/rocast/rocast/ctl/version"
)

const (
	bundleGroups = 200              // groups that a bundle describes one by one
	bundleMost   = 4 << 20          // bytes of a file in a bundle: the last ones count
	runWithin    = 10 * time.Second // a program that tells about the machine
)

// bundle is what is collected.
type bundle struct {
	a       *app
	files   []bundled
	missing []string // what could not be collected, and why
	secrets secrets
	ports   []string
	config  string // the daemon's config file
	began   time.Time
	said    bool
}

// bundled is a file of a bundle.
type bundled struct{ name, text string }

func (a *app) bundle() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Collect what a report of a problem needs, without R_Keys",
		Long: fmt.Sprintf(`Collect what a report of a problem needs into one file (tar.gz): version, kernel features, config, status, groups, counters, events,
metrics, ports, the report of rocast doctor, and what ip, ethtool, the kernel's log and the journal say of this machine. Run it as
root, so that the last two can be read.

R_Keys and VAs are left out wherever they occur: <r_key> and <va> stand for them. The keys of certificates are not read. Look at the
file before you send it: it has the addresses of your hosts. missing.txt in it says what could not be collected, and why; a daemon
that does not answer is no error. With more than %d groups the rest is only listed.`, bundleGroups),
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := &bundle{a: a, secrets: secrets{}, config: config.DefaultFile, began: time.Now()}
			if file == "" {
				host, _ := os.Hostname()
				file = fmt.Sprintf("rocast-bundle-%s-%s.tar.gz", host, b.began.Format("20060102-150405"))
			}
			return b.make(cmd.Context(), file)
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "write to `FILE`, - for standard output (default: rocast-bundle-HOST-TIME.tar.gz)")
	return cmd
}

// make collects into a file, or - for standard output. A file that cannot be made is an error
// before anything is collected.
func (b *bundle) make(ctx context.Context, file string) error {
	if file == "-" {
		b.collect(ctx)
		return b.writeTo(b.a.stdout, file)
	}
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return api.Errorf(api.Usage, "%v; write another FILE with -o", err)
	}
	defer out.Close()
	b.collect(ctx)
	if err := b.writeTo(out, file); err != nil {
		_ = os.Remove(file) // the first error counts
		return err
	}
	return b.say(file)
}

func (b *bundle) writeTo(out io.Writer, file string) error {
	if err := b.pack(out); err != nil {
		return api.Errorf(api.Internal, "write %s: %v", file, err)
	}
	return nil
}

func (b *bundle) collect(ctx context.Context) {
	b.json("client-version.json", version.Build(), nil)
	b.askDaemon(ctx, b.a.client())
	if b.a.remote.url == "" { // else this is another machine
		b.askMachine(ctx)
	}
	report := examine(ctx, b.a, doctorSeconds*time.Second)
	b.json("doctor.json", report, nil)
	var text strings.Builder
	printReport(&text, &report)
	b.add("doctor.txt", layout(text.String(), narrow), nil)
	b.files = append(b.files, bundled{"missing.txt", strings.Join(append(b.missing, ""), "\n")})
}

// askDaemon collects what the API says.
func (b *bundle) askDaemon(ctx context.Context, c *client.Client) {
	v, err := c.Version(ctx)
	if b.json("version.json", v, err); client.KindOf(err) == api.Unreachable {
		return // nothing else answers either
	}
	status, err := c.Status(ctx)
	b.json("status.json", status, err)
	if status.Config != nil {
		b.config = status.Config.File
	}
	ports, err := c.Ports(ctx)
	b.json("ports.json", ports, err)
	for _, p := range ports.Ports {
		b.ports = append(b.ports, p.Name)
	}
	groups, err := c.Groups(ctx)
	b.json("groups.json", groups, err)
	for _, g := range groups.Groups[:min(len(groups.Groups), bundleGroups)] {
		whole, err := c.Group(ctx, g.Name)
		b.secrets.of(&whole)
		b.json("groups/"+g.Name+".json", whole, err)
		if len(whole.Links) > 0 {
			tree, err := c.Tree(ctx, g.Name)
			b.json("trees/"+g.Name+".json", tree, err)
		}
	}
	features, err := c.Features(ctx)
	b.json("features.json", features, err)
	stats, err := c.Stats(ctx)
	b.json("stats.json", stats, err)
	traffic, err := c.Traffic(ctx, "")
	b.json("traffic.json", traffic, err)
	events, err := c.EventsAfter(ctx, client.Cursor{}, "", 0)
	b.json("events.json", events, err)
	perftests, err := c.Perftests(ctx)
	b.json("perftest.json", perftests, err)
	cms, err := c.CMs(ctx)
	b.json("cm.json", cms, err)
	log, err := c.Log(ctx)
	b.json("log.json", log, err)
	metrics, err := c.Metrics(ctx)
	b.add("metrics.txt", metrics, err)
}

// ours finds words of drivers and of the kernel that rocast uses.
var ours = regexp.MustCompile(`(?i)xdp|xsk|bpf|rocast|rxe|mlx5|netdev watchdog|out of memory|oom-kill`)

// askMachine collects what programs and files of this machine say.
func (b *bundle) askMachine(ctx context.Context) {
	text, err := os.ReadFile(b.config)
	b.add("rocastd.yaml", string(text), err)
	for name, file := range map[string]string{"os-release": "/etc/os-release", "meminfo": "/proc/meminfo", "interrupts": "/proc/interrupts"} {
		text, err := os.ReadFile(file)
		b.add(name+".txt", string(text), err)
	}
	for _, line := range []string{
		"uname -a", "ip -d -s link", "ip address", "ip -d route show table all", "ip -6 route show table all", "ip neighbour", "bridge fdb",
		"journalctl -u rocastd -n 20000 --no-pager -o short-iso", "systemctl status rocastd --no-pager",
	} {
		text, err := runProgram(ctx, line)
		words := strings.Fields(line)
		b.add(strings.Join(words[:min(3, len(words))], "_")+".txt", text, err)
	}
	for _, port := range b.ports {
		for _, flag := range []string{"-i", "-l", "-g", "-k", "-S"} {
			text, err := runProgram(ctx, "ethtool "+flag+" "+port)
			b.add("ethtool"+flag+"_"+port+".txt", text, err)
		}
	}
	kernel, err := runProgram(ctx, "dmesg")
	b.add("kernel-log.txt", b.about(kernel), err)
}

// about returns the lines of the kernel's log that may be about what rocast uses.
func (b *bundle) about(log string) string {
	var lines strings.Builder
	for line := range strings.Lines(log) {
		if ours.MatchString(line) || slices.ContainsFunc(b.ports, func(name string) bool { return strings.Contains(line, name) }) {
			lines.WriteString(line)
		}
	}
	return lines.String()
}

// runProgram runs a program and returns what it says.
func runProgram(ctx context.Context, line string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, runWithin)
	defer cancel()
	words := strings.Fields(line)
	output, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput()
	return string(output), err
}

// json adds an answer as JSON, without R_Keys and VAs.
func (b *bundle) json(name string, answer any, err error) {
	if err != nil {
		b.add(name, "", err)
		return
	}
	text, err := json.Marshal(answer)
	var tree any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // counters keep all their digits
	if err == nil {
		err = decoder.Decode(&tree)
	}
	var out strings.Builder
	if err == nil {
		encoder := json.NewEncoder(&out)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		err = encoder.Encode(withoutSecrets(tree))
	}
	b.add(name, out.String(), err)
}

// add adds a file, or why there is none. A program may have said something before it failed.
func (b *bundle) add(name, text string, err error) {
	if err != nil {
		b.missing = append(b.missing, fmt.Sprintf("%s: %v %s", name, err, strings.Join(strings.Fields(text), " ")))
		if text == "" {
			return
		}
	}
	if over := len(text) - bundleMost; over > 0 {
		text = fmt.Sprintf("(%d bytes before this are left out)\n", over) + text[over:]
	}
	b.files = append(b.files, bundled{name, text})
	if !b.said && time.Since(b.began) > time.Second {
		b.said = true
		fmt.Fprintln(b.a.stderr, "collecting; this takes some seconds")
	}
}

// say says what is in the file.
func (b *bundle) say(file string) error {
	done := bundleDone{File: file, Files: len(b.files), Missing: append([]string{}, b.missing...)}
	return b.a.print(done, func(w io.Writer) {
		fmt.Fprintf(w, "%s has %d files, without R_Keys; it has the addresses of your hosts\n", done.File, done.Files)
		if len(done.Missing) > 0 {
			fmt.Fprintf(w, "%d could not be collected (missing.txt in it says why)\n", len(done.Missing))
		}
	})
}

// bundleDone is the outcome for programs.
type bundleDone struct {
	File    string   `json:"file"`
	Files   int      `json:"files"`
	Missing []string `json:"missing"`
}
