// Package allocator has the scheduler's own allocator choose among the devices that the driver publishes.
package allocator

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"

	"prezero.dev/kubernetes/internal/rig"
)

var features = structured.Features{ConsumableCapacity: true, DeviceTaints: true, PrioritizedList: true}

// cluster is what the scheduler has in mind: slices, and what was allocated of them.
type cluster struct {
	testing.TB
	slices []*resourceapi.ResourceSlice
	state  structured.AllocatedState
	cel    *cel.Cache
	nodes  []*v1.Node
	claims int
}

func newCluster(t testing.TB) *cluster {
	return &cluster{TB: t, cel: cel.NewCache(10, cel.Features{EnableConsumableCapacity: true}), state: structured.AllocatedState{
		AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection()}}
}

// List and Get are the classes.
func (c *cluster) List() ([]*resourceapi.DeviceClass, error) { return nil, nil }

func (c *cluster) Get(name string) (*resourceapi.DeviceClass, error) {
	return &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceClassSpec{
		Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", name)}}}}}, nil
}

// publish a driver's devices of a node.
func (c *cluster) publish(node, driver string, devices []resourceapi.Device) {
	c.slices = append(c.slices, &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-" + driver},
		Spec: resourceapi.ResourceSliceSpec{Driver: driver, NodeName: ptr.To(node), Devices: devices,
			Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1}}})
}

func (c *cluster) node(name string) *v1.Node {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.nodes = append(c.nodes, node)
	return node
}

func (c *cluster) claim(requests ...resourceapi.DeviceRequest) *resourceapi.ResourceClaim {
	c.claims++
	return &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("claim-", c.claims), Namespace: "default", UID: types.UID(fmt.Sprint(c.claims))},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: requests}}}
}

// schedule does as the scheduler does for a pod with this claim: the first node that has room. "": none has.
func (c *cluster) schedule(claim *resourceapi.ResourceClaim, nodes ...*v1.Node) (string, []resourceapi.DeviceRequestAllocationResult) {
	ctx := context.Background()
	allocator, err := structured.NewAllocator(ctx, features, c.state, c, c.slices, c.cel)
	if err != nil {
		c.Fatal(err)
	}
	for _, node := range nodes {
		results, err := allocator.Allocate(ctx, node, []*resourceapi.ResourceClaim{claim})
		if err != nil {
			c.Fatal(err)
		}
		if results == nil {
			continue
		}
		for _, device := range results[0].Devices.Results {
			id := structured.MakeDeviceID(device.Driver, device.Pool, device.Device)
			if device.ShareID == nil {
				c.state.AllocatedDevices.Insert(id)
				continue
			}
			c.state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, device.ShareID))
			c.state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, device.ConsumedCapacity))
		}
		return node.Name, results[0].Devices.Results
	}
	return "", nil
}

func TestCapacityIsCountedAndAFullNodeSendsThePodElsewhere(t *testing.T) {
	c := newCluster(t)
	for _, name := range []string{"a", "b"} {
		c.node(name)
		c.publish(name, "prezero.dev", rig.Leases(c, 4, "0", ""))
	}
	for n, expected := range []string{"a", "a", "b", "b", ""} {
		node, results := c.schedule(c.claim(rig.Request("ram", "prezero.dev", "2Gi")), c.nodes...)
		if node != expected {
			t.Fatalf("claim %d went to %q, expected %q", n, node, expected)
		}
		if node == "" {
			continue
		}
		size := results[0].ConsumedCapacity["size"]
		if results[0].Device != "node0-2mi" || results[0].ShareID == nil || size.Value() != 2*rig.GiB {
			t.Errorf("%+v", results[0])
		}
	}
}

func TestASizeIsRoundedToWholePagesAndNoneIsOnePage(t *testing.T) {
	c := newCluster(t)
	c.node("a")
	c.publish("a", "prezero.dev", rig.Leases(c, 4, "0", ""))
	for asked, got := range map[string]int64{"3Mi": 4 << 20, "": 2 << 20} {
		_, results := c.schedule(c.claim(rig.Request("ram", "prezero.dev", asked)), c.nodes...)
		if size := results[0].ConsumedCapacity["size"]; size.Value() != got {
			t.Errorf("%q became %s", asked, size.String())
		}
	}
}

func TestATaintKeepsClaimsAway(t *testing.T) {
	c := newCluster(t)
	c.node("a")
	c.publish("a", "prezero.dev", rig.Leases(c, 4, "0", "draining"))
	if node, _ := c.schedule(c.claim(rig.Request("ram", "prezero.dev", "2Gi")), c.nodes...); node != "" {
		t.Error("a drained node was chosen")
	}
}

func TestMemoryAndACardAreOfOneNUMANode(t *testing.T) {
	c := newCluster(t)
	c.node("a")
	c.publish("a", "prezero.dev", rig.Leases(c, 8, "0-1", ""))
	c.publish("a", "nic.example", []resourceapi.Device{rig.Card("nic-1", 1)})
	claim := c.claim(rig.Request("ram", "prezero.dev", "2Gi"), rig.Request("nic", "nic.example", ""))
	claim.Spec.Devices.Constraints = rig.OnOneNode("ram", "nic")
	_, results := c.schedule(claim, c.nodes...)
	if len(results) != 2 || results[0].Device != "node1-2mi" {
		t.Errorf("%+v", results)
	}
}

// A thousand nodes and 20,000 claims, beside the same of a driver that has a device for each claim. Each claim is
// looked at as a pod's would be: on the node that the scheduler takes first.
func TestTwentyThousandClaims(t *testing.T) {
	if os.Getenv("TIMES") == "" {
		t.Skip("skipped: a minute and more; `make -C kubernetes test-long` runs it")
	}
	const nodes, each = 1000, 20
	run := func(class, size string, devices func(*cluster) []resourceapi.Device) time.Duration {
		c := newCluster(t)
		for n := range nodes {
			name := fmt.Sprint("node-", n)
			c.node(name)
			c.publish(name, class, devices(c))
		}
		began := time.Now()
		for n := range nodes * each {
			at := n % nodes
			if node, _ := c.schedule(c.claim(rig.Request("ram", class, size)), c.nodes[at]); node == "" {
				t.Fatalf("claim %d found no room on its node", n)
			}
		}
		return time.Since(began)
	}
	leases := run("prezero.dev", "1Gi", func(c *cluster) []resourceapi.Device { return rig.Leases(c, each, "0", "") })
	reference := run("gpu.example.com", "", func(*cluster) []resourceapi.Device { return rig.Reference(0, each) })
	t.Logf("%d claims on %d nodes: leases %v, devices of one claim each %v", nodes*each, nodes, leases, reference)
}
