package driver

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/ptr"

	"prezero.dev/kubernetes/internal/broker"
	"prezero.dev/kubernetes/internal/ledger"
	"prezero.dev/kubernetes/internal/params"
	"prezero.dev/kubernetes/internal/places"
)

const capacityKey = "size"

// deviceName of such pages of a node.
func deviceName(node int, page broker.Page) string {
	return fmt.Sprintf("node%d-%s", node, strings.ToLower(page.String()))
}

func parseDevice(name string) (node int, page broker.Page, err error) {
	for _, page := range []broker.Page{broker.Huge, broker.Giant} {
		if _, err := fmt.Sscanf(name, "node%d-", &node); err == nil && name == deviceName(node, page) {
			return node, page, nil
		}
	}
	return 0, 0, fmt.Errorf("%q is none of this driver's; it names them node0-2mi", name)
}

func pageOf(piece ledger.Piece) broker.Page { return broker.Page(piece.Page) }

// Offer is what the scheduler is told of.
type Offer struct {
	Places []places.Place
	Host   places.Host
	// Allocatable: what of the node's own resources a lease is, is said.
	Allocatable bool
	// Binding: the scheduler waits until a lease is ready.
	Binding bool
	// Taint of all devices, and its value; "": none.
	Taint, Why string
}

// Devices are one for each node and size of page that has room: what may be leased there, not what is ready now.
func (o Offer) Devices() []resourceapi.Device {
	nodes := o.Host.Nodes()
	var devices []resourceapi.Device
	for _, place := range o.Places {
		for _, node := range nodes {
			if room := o.Host.Room(place, node, len(nodes)); room > 0 {
				devices = append(devices, o.device(place, node, room))
			}
		}
	}
	return devices
}

// attributes of such pages of a node, for the scheduler and for the pod.
func attributes(place places.Place, node int) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	return map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		deviceattribute.StandardDeviceAttributeNUMANode: {IntValue: ptr.To(int64(node))},
		"pageSize": {StringValue: ptr.To(place.Page.String())},
		"backing":  {StringValue: ptr.To(place.Backing.String())},
	}
}

func (o Offer) device(place places.Place, node int, room uint64) resourceapi.Device {
	page := quantity(uint64(place.Page))
	device := resourceapi.Device{
		Name:                     deviceName(node, place.Page),
		AllowMultipleAllocations: ptr.To(true),
		Attributes:               attributes(place, node),
		Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
			capacityKey: {Value: quantity(room), RequestPolicy: &resourceapi.CapacityRequestPolicy{
				Default:    &page,
				ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: &page, Step: &page},
			}},
		},
	}
	if o.Taint != "" {
		device.Taints = []resourceapi.DeviceTaint{{Key: params.Driver + "/" + o.Taint, Value: o.Why, Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	}
	if o.Binding {
		device.BindingConditions, device.BindingFailureConditions = []string{ready}, []string{refused}
	}
	if o.Allocatable {
		// As the capacity is named above: the API server looks for just that name.
		key := resourceapi.QualifiedName(capacityKey)
		mapping := &resourceapi.NodeAllocatableMapping{CapacityKey: &key, CapacityMultiplier: ptr.To(resource.MustParse("1"))}
		name := v1.ResourceMemory
		if place.Backing == broker.Hugetlb {
			name = v1.ResourceName(v1.ResourceHugePagesPrefix + place.Page.String())
		}
		device.NodeAllocatableResources = map[v1.ResourceName]resourceapi.NodeAllocatableResource{name: {Mapping: mapping}}
	}
	return device
}

func quantity(bytes uint64) resource.Quantity {
	return *resource.NewQuantity(int64(bytes), resource.BinarySI)
}

// pools of this node: one, with its name.
func pools(node string, devices []resourceapi.Device) resourceslice.DriverResources {
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{node: {Slices: []resourceslice.Slice{{Devices: devices}}}}}
}
