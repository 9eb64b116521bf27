package level2

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"prezero.dev/kubernetes/internal/rig"
)

// reference is what dra-example-driver publishes of a node: devices of one claim each.
func reference(node, number int) []resourceapi.Device {
	var devices []resourceapi.Device
	for n := range number {
		devices = append(devices, resourceapi.Device{Name: fmt.Sprint("gpu-", n),
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"index": {IntValue: ptr.To(int64(n))}, "uuid": {StringValue: ptr.To(fmt.Sprintf("gpu-%08d-%04d", node, n))},
				"model": {StringValue: ptr.To("LATEST-GPU-MODEL")}, "driverVersion": {VersionValue: ptr.To("1.0.0")}},
			Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse("80Gi")}}})
	}
	return devices
}

func number(name string, usual int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return usual
}

// Pods with a lease, and as many with a device of the reference driver, in turns, on the same nodes.
func TestManyClaimsOnAThousandNodes(t *testing.T) {
	if os.Getenv("TIMES") == "" {
		t.Skip("skipped: minutes; `make -C kubernetes test-long` runs it")
	}
	nodes, claims, batch := number("NODES", 1000), number("CLAIMS", 20_000), number("BATCH", 500)
	each := (claims + nodes - 1) / nodes
	c := newCluster(t)
	devices := rig.Leases(t, uint64(each), "0", "")
	parallel(nodes, func(n int) {
		name := fmt.Sprint("node-", n)
		c.node(name, "scale")
		c.publish(name, "prezero.dev", devices)
		c.publish(name, "gpu.example.com", reference(n, each))
	})
	kinds := []struct{ name, class, size string }{{"leases", "zero.prezero.dev", "1Gi"}, {"reference", "gpu.example.com", ""}}
	wall, cpu := map[string][]time.Duration{}, map[string]time.Duration{}
	server := c.api.cpu()
	for begun := 0; begun < claims; begun += batch {
		for turn := range kinds {
			// Each goes first as often as the other.
			kind := kinds[(turn+begun/batch)%2]
			before, began := c.scheduler.cpu(), time.Now()
			c.batch(fmt.Sprintf("%s-%d", kind.name, begun), kind.class, kind.size, min(batch, claims-begun))
			wall[kind.name] = append(wall[kind.name], time.Since(began))
			cpu[kind.name] += c.scheduler.cpu() - before
		}
	}
	for _, kind := range kinds {
		times := wall[kind.name]
		var all time.Duration
		for _, one := range times {
			all += one
		}
		slices.Sort(times)
		t.Logf("%s: %d claims on %d nodes in %v; %d at a time: median %v, of %v to %v; the scheduler's CPU %v",
			kind.name, claims, nodes, all.Round(time.Second), batch, times[len(times)/2].Round(time.Millisecond),
			times[0].Round(time.Millisecond), times[len(times)-1].Round(time.Millisecond), cpu[kind.name].Round(time.Second))
	}
	t.Logf("the API server: CPU %v for both, %d MiB resident; the scheduler: %d MiB", (c.api.cpu() - server).Round(time.Second), c.api.rss()>>20, c.scheduler.rss()>>20)
	if written := c.rewritten(); written > 0 {
		t.Errorf("%d slices were rewritten", written)
	}
}

// batch of pods with a claim each, until all have a node.
func (c *cluster) batch(name, class, size string, number int) {
	parallel(number, func(n int) {
		of := fmt.Sprintf("%s-%d", name, n)
		claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: of, Namespace: namespace},
			Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{rig.Request("ram", class, size)}}}}
		c.ask(claim)
		made := pod(of, "scale", of)
		made.Labels = map[string]string{"batch": name}
		c.run(made)
	})
	c.until(name+" has nodes", func() bool {
		waiting, err := c.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "batch=" + name, FieldSelector: "spec.nodeName=", Limit: 1})
		return err == nil && len(waiting.Items) == 0
	})
}

// rewritten counts slices that are no more as they were made.
func (c *cluster) rewritten() int {
	found, err := c.ResourceV1().ResourceSlices().List(ctx, list)
	if err != nil {
		c.Fatal(err)
	}
	written := 0
	for _, slice := range found.Items {
		if slice.Generation != 1 {
			written++
		}
	}
	return written
}

// parallel calls, some at a time.
func parallel(number int, call func(int)) {
	var all sync.WaitGroup
	turn := make(chan struct{}, 16)
	for n := range number {
		turn <- struct{}{}
		all.Go(func() { call(n); <-turn })
	}
	all.Wait()
}
