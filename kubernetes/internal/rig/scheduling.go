package rig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/utils/ptr"

	"prezero.dev/kubernetes/internal/broker"
	"prezero.dev/kubernetes/internal/driver"
	"prezero.dev/kubernetes/internal/params"
	"prezero.dev/kubernetes/internal/places"
)

// GiB is a binary gigabyte.
const GiB = 1 << 30

// Leases are the devices that the driver publishes on a host with these NUMA nodes (`0-1`), of a tmpfs of so many GiB.
func Leases(t testing.TB, size uint64, numa, taint string) []resourceapi.Device {
	t.Helper()
	return Host(t, size, numa, taint).Devices()
}

// Host is what the driver has to offer there.
func Host(t testing.TB, size uint64, numa, taint string) driver.Offer {
	t.Helper()
	sys := t.TempDir()
	if err := os.MkdirAll(sys+"/devices/system/node", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(sys+"/devices/system/node/has_memory", []byte(numa), 0o644); err != nil {
		t.Fatal(err)
	}
	place := places.Place{Dir: "/leases", Page: broker.Huge, Backing: broker.Thp, Size: size * GiB}
	return driver.Offer{Places: []places.Place{place}, Host: places.Host{Sys: sys}, Taint: taint}
}

// Card is a device of another driver, on this NUMA node.
func Card(name string, node int64) resourceapi.Device {
	return resourceapi.Device{Name: name, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		deviceattribute.StandardDeviceAttributeNUMANode: {IntValue: &node}}}
}

// Reference is what dra-example-driver publishes of a node: devices of one claim each.
func Reference(node, number int) []resourceapi.Device {
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

// OnOneNode constrains these requests of a claim to devices of one NUMA node.
func OnOneNode(requests ...string) []resourceapi.DeviceConstraint {
	attribute := resourceapi.FullyQualifiedName(deviceattribute.StandardDeviceAttributeNUMANode)
	return []resourceapi.DeviceConstraint{{Requests: requests, MatchAttribute: &attribute}}
}

// Request of a claim for one device of a class; "": the request names no size.
func Request(name, class, size string) resourceapi.DeviceRequest {
	exact := &resourceapi.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1}
	if size != "" {
		exact.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{"size": resource.MustParse(size)}}
	}
	return resourceapi.DeviceRequest{Name: name, Exactly: exact}
}

// Parameters of a claim for the driver, without spaces, as kubectl sends them. A patch takes spaces away that a client
// sent as protobuf: the API server finds the allocation changed, and takes no status of the driver.
func Parameters(text string) resourceapi.DeviceConfiguration {
	var compact bytes.Buffer
	if json.Compact(&compact, []byte(text)) != nil {
		compact = *bytes.NewBufferString(text)
	}
	return resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: params.Driver, Parameters: runtime.RawExtension{Raw: compact.Bytes()}}}
}
