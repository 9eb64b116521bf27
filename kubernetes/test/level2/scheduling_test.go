package level2

import (
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"prezero.dev/kubernetes/internal/rig"
)

// What the driver publishes of a host, on nodes that are made up.
func TestTheSchedulerCountsWhatIsPublished(t *testing.T) {
	c := newCluster(t)
	schedules(c)
	t.Run("a taint keeps claims away", func(t *testing.T) {
		c.node("tainted", "tainted")
		c.publish("tainted", "prezero.dev", rig.Leases(t, 4, "0", "draining"))
		claim := c.ask(c.claim(rig.Request("ram", "zero.prezero.dev", "2Gi")))
		c.run(pod("away", "tainted", claim.Name))
		c.unschedulable("away")
	})
	t.Run("memory and a card are of one NUMA node", func(t *testing.T) {
		c.node("numa", "numa")
		c.publish("numa", "prezero.dev", rig.Leases(t, 8, "0-1", ""))
		c.publish("numa", "nic.example", []resourceapi.Device{rig.Card("nic-1", 1)})
		claim := c.claim(rig.Request("ram", "zero.prezero.dev", "2Gi"), rig.Request("nic", "nic.example", ""))
		claim.Spec.Devices.Constraints = rig.OnOneNode("ram", "nic")
		c.ask(claim)
		c.run(pod("joined", "numa", claim.Name))
		c.bound("joined")
		if results := c.results(claim.Name); len(results) != 2 || results[0].Device != "node1-2mi" || results[1].Device != "nic-1" {
			t.Errorf("%+v", results)
		}
		// That node has 2 GiB left, the other 4: the card's is too small, and the card is taken.
		other := c.claim(rig.Request("ram", "zero.prezero.dev", "3Gi"))
		c.ask(other)
		c.run(pod("alone", "numa", other.Name))
		c.bound("alone")
		if results := c.results(other.Name); results[0].Device != "node0-2mi" {
			t.Errorf("%+v", results)
		}
	})
	t.Run("a claim that two pods share is one lease on one node", func(t *testing.T) {
		for _, name := range []string{"shared-a", "shared-b"} {
			c.node(name, "shared")
			c.publish(name, "prezero.dev", rig.Leases(t, 4, "0", ""))
		}
		claim := c.ask(c.claim(rig.Request("ram", "zero.prezero.dev", "3Gi")))
		c.run(pod("first", "shared", claim.Name))
		c.run(pod("second", "shared", claim.Name))
		if first, second := c.bound("first"), c.bound("second"); first != second {
			t.Errorf("on %s and %s", first, second)
		}
		if results := c.results(claim.Name); len(results) != 1 {
			t.Errorf("%+v", results)
		}
	})
	t.Run("a size is rounded to whole pages, and none is one page", func(t *testing.T) {
		c.node("round", "round")
		c.publish("round", "prezero.dev", rig.Leases(t, 4, "0", ""))
		for asked, got := range map[string]int64{"3Mi": 4 << 20, "": 2 << 20} {
			claim := c.ask(c.claim(rig.Request("ram", "zero.prezero.dev", asked)))
			c.run(pod(claim.Name, "round", claim.Name))
			c.bound(claim.Name)
			if size := c.results(claim.Name)[0].ConsumedCapacity["size"]; size.Value() != got {
				t.Errorf("%q became %s", asked, size.String())
			}
		}
	})
}

// schedules is what every version must do: capacity is counted, a full node sends the pod elsewhere, and what a pod
// had that is gone goes to another.
func schedules(c *cluster) {
	c.Helper()
	for _, name := range []string{"a", "b"} {
		c.node(name, "counted")
		asked := rig.Leases(c, 4, "0", "")
		if stored := c.publish(name, "prezero.dev", asked).Spec.Devices[0]; stored.AllowMultipleAllocations == nil ||
			stored.Capacity["size"].RequestPolicy == nil || len(stored.Attributes) != len(asked[0].Attributes) {
			c.Fatalf("the API server dropped a part of %+v", stored)
		}
	}
	on := map[string]int{}
	for n := range 5 {
		name := fmt.Sprint("pod-", n)
		claim := c.claim(rig.Request("ram", "zero.prezero.dev", "2Gi"))
		claim.Name = name
		c.ask(claim)
		c.run(pod(name, "counted", name))
		if n == 4 {
			if why := c.unschedulable(name); !strings.Contains(why, "cannot allocate all claims") {
				c.Error(why)
			}
			continue
		}
		on[c.bound(name)]++
		result := c.results(name)[0]
		if size := result.ConsumedCapacity["size"]; result.Device != "node0-2mi" || result.ShareID == nil || size.Value() != 2*rig.GiB {
			c.Errorf("%+v", result)
		}
	}
	if on["a"] != 2 || on["b"] != 2 {
		c.Errorf("%v", on)
	}
	c.end("pod-1", "pod-1")
	c.bound("pod-4")
}
