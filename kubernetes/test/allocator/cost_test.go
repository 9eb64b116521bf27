package allocator

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/structured"

	"prezero.dev/kubernetes/internal/rig"
)

// What a pod's claim costs the allocator on 1,000 nodes of which the scheduler looks at 420, by what a device says, with
// 8 claims on each node, or 16 on every second.
func TestWhatAClaimCostsTheAllocator(t *testing.T) {
	if os.Getenv("TIMES") == "" {
		t.Skip("skipped: half a minute, and a time; `make -C kubernetes test-long` runs it")
	}
	const nodes, looked, each, rounds = 1000, 420, 20, 100
	leases := func(change func(*resourceapi.Device)) []resourceapi.Device {
		devices := rig.Leases(t, each, "0", "")
		change(&devices[0])
		return devices
	}
	shapes := []struct {
		name, class, size string
		devices           []resourceapi.Device
	}{
		{"reference", "gpu.example.com", "", rig.Reference(0, each)},
		{"leases", "prezero.dev", "1Gi", leases(func(*resourceapi.Device) {})},
		{"leases without a NUMA node", "prezero.dev", "1Gi", leases(func(d *resourceapi.Device) { delete(d.Attributes, "resource.kubernetes.io/numaNode") })},
		{"leases without attributes", "prezero.dev", "1Gi", leases(func(d *resourceapi.Device) { d.Attributes = nil })},
	}
	for _, every := range []int{1, 2} {
		clusters := make([]*cluster, len(shapes))
		for n, shape := range shapes {
			clusters[n] = newCluster(t)
			for node := range nodes {
				name := fmt.Sprint("node-", node)
				clusters[n].node(name)
				clusters[n].publish(name, shape.class, shape.devices)
				if node%every == 0 {
					clusters[n].take(shape.class, name, shape.devices, 8*every)
				}
			}
		}
		spent := make([]time.Duration, len(shapes))
		// In turns: the machine has other work, too.
		for round := range rounds {
			for n, shape := range shapes {
				runtime.GC()
				began := cpu(t)
				clusters[n].look(shape.class, shape.size, round*looked, looked)
				spent[n] += cpu(t) - began
			}
		}
		for n, shape := range shapes {
			t.Logf("claims on each %d. node: %s: %v a claim, %.2f of the reference", every, shape.name,
				(spent[n] / rounds).Round(10*time.Microsecond), float64(spent[n])/float64(spent[0]))
		}
	}
}

// take so many claims on a node.
func (c *cluster) take(driver, node string, devices []resourceapi.Device, number int) {
	for n := range number {
		if len(devices) > 1 {
			c.state.AllocatedDevices.Insert(structured.MakeDeviceID(driver, node, devices[n].Name))
			continue
		}
		id, share := structured.MakeDeviceID(driver, node, devices[0].Name), types.UID(fmt.Sprint(node, "-", n))
		c.state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, &share))
		size := map[resourceapi.QualifiedName]resource.Quantity{"size": resource.MustParse("1Gi")}
		c.state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, size))
	}
}

// look at so many nodes for a claim, as the scheduler does: with a copy of what is allocated.
func (c *cluster) look(class, size string, from, number int) {
	ctx := context.Background()
	claims := []*resourceapi.ResourceClaim{c.claim(rig.Request("ram", class, size))}
	state := structured.AllocatedState{AllocatedDevices: c.state.AllocatedDevices.Clone(),
		AllocatedSharedDeviceIDs: c.state.AllocatedSharedDeviceIDs.Clone(), AggregatedCapacity: c.state.AggregatedCapacity.Clone()}
	allocator, err := structured.NewAllocator(ctx, features, state, c, c.slices, c.cel)
	if err != nil {
		c.Fatal(err)
	}
	for n := range number {
		if results, err := allocator.Allocate(ctx, c.nodes[(from+n)%len(c.nodes)], claims); err != nil || results == nil {
			c.Fatal("no room", err)
		}
	}
}

// cpu that this process has used.
func cpu(t *testing.T) time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
