// Package machine says on which machine a measurement runs.
package machine

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/bench/report"
)

// Describe describes this machine, before a run. A field stays empty if its value cannot be found
// out.
func Describe(bin string) report.Machine {
	m := report.Machine{
		Version: firstLine(filepath.Join(bin, "rocastd"), "--version"), CPU: cpuModel(), CPUs: runtime.NumCPU(),
		Go: runtime.Version(), C: firstLine("gcc", "--version"), OVS: firstLine("ovs-vswitchd", "--version"),
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		first, _, _ := strings.Cut(string(load), " ")
		m.Load, _ = strconv.ParseFloat(first, 64)
	}
	return m
}

func firstLine(name string, args ...string) string {
	output, err := exec.Command(name, args...).Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(output), "\n")
	return strings.TrimSpace(line)
}

func cpuModel() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
