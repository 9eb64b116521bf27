package driver

import (
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"prezero.dev/kubernetes/internal/params"
)

// All claims of the cluster come to each node's driver, which has 128 MiB: users would fill it with what they write.
func TestNothingStaysInMemoryOfWhatUsersWriteIntoClaims(t *testing.T) {
	d := &Driver{Options: Options{Node: "here"}}
	long := strings.Repeat("x", 10<<10)
	on := func(node string) *resourceapi.ResourceClaim {
		config := resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: params.Driver,
			Parameters: runtime.RawExtension{Raw: []byte(`"` + long + `"`)}}}
		return &resourceapi.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "their", Name: "claim", UID: "uid", ResourceVersion: "7",
				Annotations: map[string]string{"a": long}, Labels: map[string]string{"l": long}, Finalizers: []string{long},
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: long}}},
			Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
				Config: []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: config}}}},
			Status: resourceapi.ResourceClaimStatus{
				Devices: []resourceapi.AllocatedDeviceStatus{{Data: &runtime.RawExtension{Raw: []byte(`"` + long + `"`)}}},
				Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
					Config: []resourceapi.DeviceAllocationConfiguration{{DeviceConfiguration: config}},
					Results: []resourceapi.DeviceRequestAllocationResult{{Driver: params.Driver, Pool: node, Request: long,
						BindingConditions: []string{ready}}}}}},
		}
	}
	for node, own := range map[string]int{"here": 1, "there": 0} {
		claim := on(node)
		kept, err := d.trimmed(claim)
		if err != nil {
			t.Fatal(err)
		}
		stays := kept.(*resourceapi.ResourceClaim)
		if size := stays.Size(); size > 256 {
			t.Errorf("%s: %d bytes of %d stay", node, size, claim.Size())
		}
		if len(d.own(stays)) != own || stays.UID != "uid" || cache.MetaObjectToName(stays) != cache.NewObjectName("their", "claim") {
			t.Errorf("%s: %+v", node, stays)
		}
		// It may be asked for one that it has trimmed.
		if again, _ := d.trimmed(stays); again.(*resourceapi.ResourceClaim).Size() != stays.Size() {
			t.Errorf("%s: %+v", node, again)
		}
	}
	gone := cache.DeletedFinalStateUnknown{Key: "their/claim"}
	if same, _ := d.trimmed(gone); same != gone {
		t.Error(same)
	}
}
