package level2

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"prezero.dev/kubernetes/internal/rig"
)

// With --node-allocatable a lease is a part of the node's own memory: what is leased no other pod may request.
func TestALeaseIsSubtractedFromTheNode(t *testing.T) {
	c := newCluster(t, "--feature-gates=DRANodeAllocatableResources=true")
	// The API server refuses such slices of a node whose kubelet does not declare the feature.
	c.features = []string{"DRANodeAllocatableResources"}
	s := newSiteOf(t, c, "64M", "--node-allocatable")
	mapped := s.published(64*mib, "").Spec.Devices[0].NodeAllocatableResources[v1.ResourceMemory]
	if mapped.Mapping == nil || mapped.Mapping.CapacityKey == nil || *mapped.Mapping.CapacityKey != "size" {
		t.Fatalf("the API server dropped a part of %+v", mapped)
	}
	claim, _ := s.lease("one", "32Mi")
	with, err := s.CoreV1().Pods(namespace).Get(ctx, "one", get)
	if err != nil || len(with.Status.NodeAllocatableResourceClaimStatuses) != 1 {
		t.Errorf("the pod's status tells of no lease: %v, %+v", err, with.Status.NodeAllocatableResourceClaimStatuses)
	}
	// The node has 6 GiB, of which broker and driver request some.
	free := int64(6 * rig.GiB)
	pods, err := s.CoreV1().Pods("prezero").List(ctx, list)
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		for _, container := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
			free -= container.Resources.Requests.Memory().Value()
		}
	}
	other := pod("other", "leases", "")
	other.Spec.ResourceClaims, other.Spec.Containers[0].Resources.Claims = nil, nil
	other.Spec.Containers[0].Resources.Requests[v1.ResourceMemory] = *resource.NewQuantity(free-16*mib, resource.BinarySI)
	s.run(other)
	if why := s.unschedulable("other"); !strings.Contains(why, "Insufficient memory") {
		t.Error(why)
	}
	if err := s.driver.Unprepare(claim); err != nil {
		t.Fatal(err)
	}
	s.end("one", "one")
	s.bound("other")
	// And the other way round: no lease where the memory is requested.
	late := s.claim(rig.Request("ram", "zero.prezero.dev", "32Mi"))
	s.ask(late)
	s.run(pod("late", "leases", late.Name))
	if why := s.unschedulable("late"); !strings.Contains(why, "memory") {
		t.Error(why)
	}
}
