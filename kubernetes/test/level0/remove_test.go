package level0

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"prezero.dev/kubernetes/internal/rig"
)

func (n *node) taint(taint string) bool {
	const slices = "/apis/resource.k8s.io/v1/resourceslices"
	for _, object := range n.api.List(slices) {
		var slice resourceapi.ResourceSlice
		n.api.Get(slices+"/"+object.GetName(), &slice)
		for _, device := range slice.Spec.Devices {
			return taint == "" && len(device.Taints) == 0 || len(device.Taints) == 1 && device.Taints[0].Key == "prezero.dev/"+taint
		}
	}
	return false
}

// label the rig's node.
func (n *node) label(labels map[string]string) {
	const path = "/api/v1/nodes/" + rig.Node
	var object map[string]any
	if !n.api.Get(path, &object) {
		n.Fatal("there is no node")
	}
	object["metadata"].(map[string]any)["labels"] = labels
	n.api.Put(path, object)
}

func TestALabelOfTheNodeDrainsIt(t *testing.T) {
	// A look in an hour: the label alone has the driver act.
	n := newNode(t, "64M", "", "--look", "1h")
	rig.Until(t, "no taint", func() bool { return n.taint("") })
	kept := n.claim(1, 4, "")
	n.prepare(kept)
	n.label(map[string]string{"prezero.dev/drain": "true"})
	rig.Until(t, "the taint", func() bool { return n.taint("draining") })
	n.label(map[string]string{"prezero.dev/drain": "false"})
	rig.Until(t, "no taint", func() bool { return n.taint("") })
	n.label(map[string]string{"prezero.dev/drain": "", "other": "x"})
	rig.Until(t, "the taint", func() bool { return n.taint("draining") })
	// A driver that starts finds the label; what is leased stays.
	n.driver.Kill()
	n.driver.Start()
	n.label(nil)
	rig.Until(t, "no taint", func() bool { return n.taint("") })
	n.books(kept)
	n.unprepare(kept)
	n.nothingIsLeft()
}

func TestRemovalLeavesNoFileAndTakesNoLease(t *testing.T) {
	n := newNode(t, "64M", "", "--pod-uid", "pod-1")
	claim := n.claim(1, 4, "")
	n.prepare(claim)
	if out, err := n.driver.Run("drain"); err != nil {
		t.Fatal(err, out)
	}
	refused := func(why string) {
		t.Helper()
		out, err := n.driver.Run("remove")
		if err == nil || !strings.Contains(out, why) || strings.Count(out, "\n") != 1 {
			t.Fatalf("%v: %s", err, out)
		}
		n.books(claim)
	}
	refused("a process serves there; delete the DaemonSets first")
	n.driver.Kill()
	refused("prezerod.sock: a process serves there")
	n.broker.Kill()
	refused("1 leases, such as claim-" + string(claim.UID) + ".0." + strings.Split(rig.LeaseOf(t, n.broker.Files, claim.UID), ".")[2] + "; delete the pods that have claims first")
	n.driver.Start()
	n.unprepare(claim)
	n.driver.Kill()
	// A file of a stranger in the directory that both use, and one in the mount.
	stranger := n.driver.Path("cdi/nvidia.com-gpu.yaml")
	mine := filepath.Join(n.broker.Files, "notes")
	for _, file := range []string{stranger, mine} {
		if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := n.driver.Run("remove"); err == nil || !strings.Contains(out, "1 leases, such as notes") {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Remove(mine); err != nil {
		t.Fatal(err)
	}
	// Twice: what is gone is no error.
	for range 2 {
		if out, err := n.driver.Run("remove"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for dir, left := range map[string]string{"data": "", "registry": "", "cdi": "nvidia.com-gpu.yaml"} {
		if found := strings.Join(list(t, n.driver.Path(dir)), " "); found != left {
			t.Errorf("%s has %q", dir, found)
		}
	}
	if _, err := os.Lstat(n.driver.Path("data")); err == nil {
		t.Error("the plugin's directory is still there")
	}
	// The test's own configuration alone.
	if left := list(t, filepath.Dir(n.broker.Socket)); strings.Join(left, " ") != "prezerod.toml" {
		t.Errorf("of the broker %v is left", left)
	}
}
