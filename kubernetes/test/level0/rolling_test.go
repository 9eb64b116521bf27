package level0

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"prezero.dev/kubernetes/internal/broker"
	"prezero.dev/kubernetes/internal/rig"
)

// take a lease of a claim's socket, as its pod does.
func (n *node) take(claim *claimOf) error {
	conn, err := broker.Dial(context.Background(), n.driver.Path("data/claims/"+string(claim.UID)+"/0/prezerod.sock"))
	if err != nil {
		return err
	}
	defer conn.Close()
	lease, err := conn.Lease(context.Background(), broker.Want{Bytes: 4 * mib, Page: broker.Huge, Node: broker.AnyNode}, 0)
	if err == nil {
		_ = lease.File.Close()
	}
	return err
}

// As a DaemonSet with maxSurge does: the new pod's driver comes before the old one's goes, and the kubelet asks either.
func TestAnUpdateOfTheDriverLosesAndDoublesNothing(t *testing.T) {
	runtime := rig.NewRuntime(t)
	n := newNode(t, "64M", "[[stock]]\nsize = \"8M\"\nkeep = 2\ntenant = \"kubernetes\"\n", "--pod-uid", "pod-1", "--nri", runtime.Socket)
	runtime.Plugin(1)
	rig.Until(t, "a slice", func() bool { return n.api.Writes.Load() > 0 })
	rig.Until(t, "stock", func() bool { return n.broker.Ready() >= 16*mib })
	socket := `{"deliver": "socket"}`
	before, taken, during := n.claim(1, 4, socket), n.claim(2, 4, socket), n.claim(3, 4, socket)
	file, late := n.claim(4, 4, ""), n.claim(5, 4, "")
	for _, claim := range []*claimOf{before, taken, file} {
		n.prepare(claim)
	}
	if err := n.take(taken); err != nil {
		t.Fatal(err)
	}
	writes := n.api.Writes.Load()
	old := n.driver
	fresh := old.Beside("pod-2")
	asked := map[string]func(*claimOf) ([]string, error){"old": old.Prepare, "new": fresh.Prepare}
	for range 3 {
		for who, prepare := range asked {
			for _, claim := range []*claimOf{before, taken, file, during} {
				ids, err := prepare(claim)
				if err != nil || len(ids) == 0 || ids[0] != "prezero.dev/lease="+string(claim.UID)+"-0" {
					t.Fatalf("%s, %s: %v %v", who, claim.Name, ids, err)
				}
			}
		}
		// A pod that was handed its lease by one is not handed it by the other.
		if err := n.take(taken); err == nil || !strings.Contains(err.Error(), "taken before") {
			t.Fatal(err)
		}
	}
	n.books(before, taken, during, file)
	// What the old one bound last is served when it is gone.
	if _, err := old.Prepare(late); err != nil {
		t.Fatal(err)
	}
	if runtime.Plugins() != 1 {
		t.Error("two plugins change containers at once: the runtime refuses such containers")
	}
	old.Terminate()
	n.driver = fresh
	runtime.Plugin(2)
	for _, claim := range []*claimOf{before, during} {
		rig.Until(t, "the new driver serves "+claim.Name, func() bool { return n.take(claim) == nil })
	}
	n.books(before, taken, during, file, late)
	if ready := n.broker.Ready(); ready < 16*mib {
		t.Errorf("the update took the broker's stock: %d bytes are ready", ready)
	}
	if now := n.api.Writes.Load(); now != writes {
		t.Errorf("slices were written %d times though nothing changed but the driver", now-writes)
	}
	for _, claim := range []*claimOf{before, taken, during, file, late} {
		n.unprepare(claim)
	}
	n.nothingIsLeft()
}

func TestADriverThatWasKilledLeavesNoSocketForTheKubelet(t *testing.T) {
	n := newNode(t, "64M", "", "--pod-uid", "pod-1")
	n.driver.Kill()
	// The kernel removes no socket of a process that was killed.
	left := []string{"data/dra-pod-1.sock", "registry/prezero.dev-pod-1-reg.sock"}
	for _, name := range left {
		if _, err := os.Lstat(n.driver.Path(name)); err != nil {
			t.Fatal(err)
		}
		hour := time.Now().Add(-time.Hour)
		if err := os.Chtimes(n.driver.Path(name), hour, hour); err != nil {
			t.Fatal(err)
		}
	}
	second := n.driver.Beside("pod-2")
	for _, name := range left {
		rig.Until(t, name+" is gone", func() bool { _, err := os.Lstat(n.driver.Path(name)); return err != nil })
	}
	// What is served stays, however old it is.
	hour := time.Now().Add(-time.Hour)
	for _, name := range []string{"data/dra-pod-2.sock", "registry/prezero.dev-pod-2-reg.sock"} {
		if err := os.Chtimes(n.driver.Path(name), hour, hour); err != nil {
			t.Fatal(err)
		}
	}
	third := second.Beside(types.UID("pod-3"))
	claim := n.claim(1, 4, "")
	for _, driver := range []*rig.Driver{second, third, second} {
		if _, err := driver.Prepare(claim); err != nil {
			t.Fatal(err)
		}
	}
	n.driver = third
	n.unprepare(claim)
	n.nothingIsLeft()
}

func TestADriverWaitsForTheMountOfAnotherPod(t *testing.T) {
	b, api := rig.NewBroker(t, "64M", ""), rig.NewAPI(t)
	later := t.TempDir() + "/later"
	n := &node{t, api, b, rig.NewDriverBefore(t, api, b.Socket, later)}
	rig.Until(t, "it says for what it waits", func() bool { return n.driver.Said("wait for the directories of leases") })
	if err := os.Symlink(b.Files, later); err != nil {
		t.Fatal(err)
	}
	n.driver.Registered()
	claim := n.claim(1, 4, "")
	n.prepare(claim)
	n.unprepare(claim)
	n.nothingIsLeft()
}
