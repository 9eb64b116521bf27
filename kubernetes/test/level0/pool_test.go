package level0

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"prezero.dev/kubernetes/internal/rig"
)

// A pool's pages are charged to whom populates them: a container that may have none of its own maps a lease, and uses it.
func TestPagesOfAPoolAreLeasedAndChargedToNoContainer(t *testing.T) {
	b := rig.NewPoolBroker(t, 32, "")
	api := rig.NewAPI(t)
	n := &node{t, api, b, rig.NewDriver(t, api, b.Socket, b.Files)}
	claim := n.claim(1, 16, "")
	n.prepare(claim)
	n.books(claim)

	group := hugetlbGroup(t)
	inside := exec.Command(rig.Build(t, "prezero.dev/kubernetes/test/level1/inside", "netgo,osusergo"))
	inside.Env = []string{"PREZERO_LEASE=" + n.file(claim)}
	if group != "" {
		dir, err := os.Open(group)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		inside.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	}
	out, err := inside.CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"Bytes":16777216,"Zero":true`) {
		t.Fatalf("%v: %s", err, out)
	}
	if group != "" {
		for _, file := range []string{"hugetlb.2MB.current", "hugetlb.2MB.rsvd.current"} {
			if text, err := os.ReadFile(filepath.Join(group, file)); err == nil && strings.TrimSpace(string(text)) != "0" {
				t.Errorf("%s: %s", file, text)
			}
		}
	}

	// Of its own file: other programs use the pool, too.
	kept := n.open(claim)
	n.unprepare(claim)
	n.books()
	var left syscall.Stat_t
	if err := syscall.Fstat(int(kept.Fd()), &left); err != nil || left.Blocks != 0 {
		t.Errorf("%v: %d blocks of the lease are not back in the pool", err, left.Blocks)
	}
}

// A pod that asks for pages of the pool by its limit, without a claim, finds them there when it starts.
func TestStockYieldsToAContainerThatWasPromisedPagesOfThePool(t *testing.T) {
	b := rig.NewPoolBroker(t, 32, "limit = \"64M\"\n[[stock]]\nsize = \"8M\"\nkeep = 8\ntenant = \"kubernetes\"\n")
	runtime := rig.NewRuntime(t)
	driver := rig.NewDriver(t, rig.NewAPI(t), b.Socket, b.Files, "--nri", runtime.Socket)
	runtime.Plugin(1)
	full := func() bool { return b.Ready() >= 56*mib }
	rig.Until(t, "stock", full)
	// Four more than are free beside all of the stock; other programs use the pool, too.
	promised := rig.FreePages(t) + 4
	yielded := func() bool { return rig.FreePages(t) >= promised && b.Ready() >= 32*mib }
	container := rig.Container("ordinary", uint64(promised)*2*mib)
	runtime.Create(container)
	if after := rig.FreePages(t); after < promised {
		t.Errorf("%d pages are free when the container starts, which was promised %d", after, promised)
	}
	b.Kill()
	b.Start()
	rig.Until(t, "a broker that starts anew yields, too", yielded)
	driver.Kill()
	runtime.Containers = []*api.Container{container}
	driver.Start()
	runtime.Plugin(2)
	rig.Until(t, "a driver that starts anew hears of the container", yielded)
	runtime.Remove(container)
	rig.Until(t, "the stock is whole again", full)
}

// hugetlbGroup is a cgroup that may have no page of a pool; "": this host has no such controller in version 2.
func hugetlbGroup(t *testing.T) string {
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		controllers, _ := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
		if !strings.Contains(string(controllers), "hugetlb") {
			continue
		}
		_ = os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+hugetlb"), 0o644)
		group := filepath.Join(root, "prezero-test-"+filepath.Base(t.TempDir()))
		if err := os.Mkdir(group, 0o755); err != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(group) })
		for _, file := range []string{"hugetlb.2MB.max", "hugetlb.2MB.rsvd.max"} {
			if err := os.WriteFile(filepath.Join(group, file), []byte("0"), 0o644); err != nil {
				t.Logf("%v: the charge is not looked at", err)
				return ""
			}
		}
		return group
	}
	t.Log("no hugetlb controller of version 2: the charge is not looked at")
	return ""
}
