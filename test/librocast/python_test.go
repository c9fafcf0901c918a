package librocast

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// wrappedVerbs are the functions of libibverbs that groups/device.c stands in for.
func wrappedVerbs() string {
	var list []string
	for _, object := range []string{"comp_channel", "cq", "srq", "qp"} {
		list = append(list, "ibv_create_"+object, "ibv_destroy_"+object)
	}
	list = append(list, "ibv_modify_qp", "ibv_get_cq_event", "ibv_ack_cq_events", "ibv_reg_mr", "ibv_reg_dmabuf_mr", "ibv_dereg_mr", "ibv_close_device", "fopen", "mmap",
		"clock_gettime", "timerfd_settime")
	return "-Wl,--wrap=" + strings.Join(list, ",--wrap=")
}

// The package for Python does what its documentation says, with every Python 3.11 to 3.13 that this
// machine has, and as a wheel in a fresh virtual environment.
func TestPython(t *testing.T) {
	var pythons []string
	for _, name := range []string{"/usr/bin/python3", "python3.11", "python3.12", "python3.13"} {
		// A wrapper that chooses between versions may have the name and not the version.
		if path, err := exec.LookPath(name); err == nil && exec.Command(path, "-c", "").Run() == nil {
			pythons = append(pythons, path)
		}
	}
	if len(pythons) == 0 {
		t.Skip("there is no python3; apt install python3")
	}
	sources, err := filepath.Glob("../../host/*.c")
	if err != nil {
		t.Fatal(err)
	}
	library := filepath.Join(t.TempDir(), "librocast.so.0")
	args := append([]string{"-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-shared", "-fPIC", "-o", library}, sources...)
	output(t, "gcc", append(args, "groups/device.c", "-libverbs", "-pthread", wrappedVerbs())...)
	plays := func(t *testing.T, python, path string) {
		cmd := exec.CommandContext(t.Context(), python, "-B", "-W", "error", "python/test_rocast.py")
		box := httptest.NewServer(&fixedHosts{ports: map[string]string{}, ended: map[string]string{}})
		defer box.Close()
		cmd.Env = append(os.Environ(), "ROCAST_LIBRARY="+library, "ROCAST_BOX="+strings.TrimPrefix(box.URL, "http://"), "PYTHONPATH="+path)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for _, python := range pythons {
		t.Run(filepath.Base(python), func(t *testing.T) { plays(t, python, "../../host/python") })
	}
	t.Run("wheel", func(t *testing.T) {
		if err := exec.Command("/usr/bin/python3", "-c", "import setuptools, ensurepip, pip, wheel").Run(); err != nil {
			t.Skip("no wheel can be made; apt install python3-venv python3-pip python3-setuptools python3-wheel")
		}
		build := t.TempDir()
		output(t, "make", "-s", "-C", "../..", "wheel", "BUILD="+build, "VERSION=v1.2.3-rc1-4-gabc", "COMMIT=0123456789abcdef", "SOURCE_DATE_EPOCH=1700000000")
		wheel := filepath.Join(build, "packages/rocast-1.2.3rc1+4.gabc-py3-none-any.whl")
		environment := filepath.Join(build, "venv")
		output(t, "/usr/bin/python3", "-m", "venv", environment)
		output(t, filepath.Join(environment, "bin/pip"), "install", "--quiet", "--no-index", "--disable-pip-version-check", wheel)
		plays(t, filepath.Join(environment, "bin/python"), "")
	})
}

func output(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}
