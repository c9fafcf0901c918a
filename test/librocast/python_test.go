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
	list = append(list, "ibv_modify_qp", "ibv_get_cq_event", "ibv_ack_cq_events", "ibv_reg_mr", "ibv_dereg_mr", "ibv_close_device")
	return "-Wl,--wrap=" + strings.Join(list, ",--wrap=")
}

// The package for Python does what its documentation says, with every Python 3.11 to 3.13 that this
// machine has.
func TestPython(t *testing.T) {
	var pythons []string
	for _, name := range []string{"python3", "python3.11", "python3.12", "python3.13"} {
		// A wrapper that chooses between versions may have the name and not the version.
		if path, err := exec.LookPath(name); err == nil && exec.Command(path, "-c", "").Run() == nil {
			pythons = append(pythons, path)
		}
	}
	if len(pythons) == 0 {
		t.Skip("there is no python3; apt install python3")
	}
	box := httptest.NewServer(&fixedHosts{ports: map[string]string{}, ended: map[string]string{}})
	defer box.Close()
	sources, err := filepath.Glob("../../host/*.c")
	if err != nil {
		t.Fatal(err)
	}
	library := filepath.Join(t.TempDir(), "librocast.so.0")
	args := append([]string{"-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-shared", "-fPIC", "-o", library}, sources...)
	args = append(args, "groups/device.c", "-libverbs", "-pthread", wrappedVerbs())
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, python := range pythons {
		t.Run(filepath.Base(python), func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), python, "-B", "-W", "error", "python/test_rocast.py")
			cmd.Env = append(os.Environ(), "PYTHONPATH=../../host/python", "ROCAST_LIBRARY="+library, "ROCAST_BOX="+strings.TrimPrefix(box.URL, "http://"))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}
