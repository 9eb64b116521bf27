package level2

import (
	"testing"

	"prezero.dev/kubernetes/internal/rig"
)

// Earlier versions, as the processes of this one emulate them.
func TestEarlierVersionsCountTooWithTheirGates(t *testing.T) {
	for version, gates := range map[string]string{"1.34": "DRAConsumableCapacity=true", "1.35": "DRAConsumableCapacity=true", "1.36": ""} {
		t.Run(version, func(t *testing.T) {
			flags := []string{"--emulated-version=" + version}
			if gates != "" {
				flags = append(flags, "--feature-gates="+gates)
			}
			schedules(newCluster(t, flags...))
		})
	}
}

// With the gate a lease is a part of its node's memory, too.
func TestALeaseIsSubtractedFromTheNodeWithTheGate(t *testing.T) {
	c := newCluster(t, "--feature-gates=DRANodeAllocatableResources=true")
	// Nodes of 6 GiB.
	for _, name := range []string{"a", "b"} {
		c.node(name, "mapped")
		offer := rig.Host(t, 8, "0", "")
		offer.Allocatable = true
		c.publish(name, "prezero.dev", offer.Devices())
	}
	on := map[string]int{}
	for _, name := range []string{"one", "two"} {
		claim := c.claim(rig.Request("ram", "zero.prezero.dev", "4Gi"))
		claim.Name = name
		c.ask(claim)
		c.run(pod(name, "mapped", name))
		on[c.bound(name)]++
	}
	if len(on) != 2 {
		t.Errorf("two leases of 4 GiB on a node of 6: %v", on)
	}
}
