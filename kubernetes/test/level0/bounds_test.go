package level0

import (
	"strings"
	"syscall"
	"testing"

	"prezero.dev/kubernetes/internal/rig"
)

func TestALeaseThatIsGrownTakesNothingFromOthers(t *testing.T) {
	n := newNode(t, "64M", "", "--wait", "300ms")
	claim, other := n.claim(1, 8, `{"user": 1000, "group": 1000}`), n.claim(2, 56, "")
	n.prepare(claim)
	file := n.open(claim)
	_ = file.Truncate(60 * mib)
	for at := int64(8); at < 60; at++ {
		if _, err := file.WriteAt(make([]byte, mib), at*mib); err == nil {
			t.Fatalf("the pod has MiB %d of a claim of 8", at)
		}
	}
	// What the scheduler counts as free is free.
	n.prepare(other)
	n.unprepare(claim)
	n.unprepare(other)
	n.nothingIsLeft()
}

func TestADescriptorThatIsKeptKeepsNothingOfATmpfs(t *testing.T) {
	n := newNode(t, "64M", "", "--wait", "300ms")
	claim, other := n.claim(1, 48, ""), n.claim(2, 48, "")
	n.prepare(claim)
	kept := n.open(claim)
	n.unprepare(claim)
	n.prepare(other)
	_ = kept.Truncate(48 * mib)
	if _, err := kept.WriteAt(make([]byte, mib), 0); err == nil {
		t.Error("what was given back is filled again")
	}
	n.unprepare(other)
	n.nothingIsLeft()
}

func TestADescriptorThatIsKeptOfAPoolIsCountedAndNamed(t *testing.T) {
	b := rig.NewPoolBroker(t, 16, "")
	api := rig.NewAPI(t)
	n := &node{t, api, b, rig.NewDriver(t, api, b.Socket, b.Files)}
	claim := n.claim(1, 8, "")
	n.prepare(claim)
	kept := n.open(claim)
	n.unprepare(claim)
	// Of its own file: other tests use the pool, too.
	var left syscall.Stat_t
	if err := syscall.Fstat(int(kept.Fd()), &left); err != nil || left.Size != 0 || left.Blocks != 0 {
		t.Errorf("%v: %d bytes, %d blocks are left of it", err, left.Size, left.Blocks)
	}
	if out, err := n.driver.Run("status"); err != nil || !strings.Contains(out, "some process has it open: 8Mi cannot be leased") {
		t.Errorf("%v\n%s", err, out)
	}
	_ = kept.Close()
	n.nothingIsLeft()
}
