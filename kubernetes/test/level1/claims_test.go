package level1

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/dynamic-resource-allocation/api/metadata"
	metadatav1beta1 "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/devicemetadata"

	"prezero.dev/kubernetes/internal/rig"
)

// Two claims whose requests have one name: the container finds each by the claim's name, in variables and by KEP-5304.
func TestAContainerTellsItsClaimsApart(t *testing.T) {
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip("skipped: no runc; apt-get install runc")
	}
	broker := rig.NewBroker(t, "64M", "")
	first := prepare(t, broker, rig.Claim(1, 4, ""))
	second := first.beside(rig.Claim(2, 8, `{"deliver": "socket"}`))
	name := fmt.Sprintf("prezero-claims-%d", os.Getpid())
	dir := bundle(t, func(spec *oci.Spec) {
		spec.Process.Args = []string{"/inside", "told"}
		spec.Linux.CgroupsPath = "/" + name
		first.inject(spec)
		second.inject(spec)
	})
	out, err := exec.Command("runc", "run", "-b", dir, name).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	told := map[string]string{}
	if err := json.Unmarshal(out, &told); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for n, expected := range []struct {
		variable, path, deliver string
		bytes                   int64
	}{
		{"PREZERO_LEASE_CLAIM_1__RAM", "/run/prezero/leases/" + string(first.claim.UID) + "/ram", "file", 4 * mib},
		{"PREZERO_SOCKET_CLAIM_2__RAM", "/run/prezero/leases/" + string(second.claim.UID) + "/ram/prezerod.sock", "socket", 8 * mib},
	} {
		if told[expected.variable] != expected.path {
			t.Errorf("%s is %q", expected.variable, told[expected.variable])
		}
		file := metadata.ResourceClaimFilePath("prezero.dev", fmt.Sprintf("claim-%d", n+1), "ram")
		text, found := told[file]
		if !found {
			t.Fatalf("no %s: %v", file, told)
		}
		var of metadata.DeviceMetadata
		if err := devicemetadata.DecodeMetadataFromStream(json.NewDecoder(strings.NewReader(text)), &of); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		device := of.Requests[0].Devices[0]
		at := device.Attributes
		if *at["path"].StringValue != expected.path || *at["deliver"].StringValue != expected.deliver || *at["bytes"].IntValue != expected.bytes ||
			device.Driver != "prezero.dev" {
			t.Errorf("%s: %s", file, text)
		}
		published := attributes(first)
		if len(published) < 3 {
			t.Errorf("the slice has %v", published)
		}
		for name, attribute := range published {
			if !equality.Semantic.DeepEqual(at[name], attribute) {
				t.Errorf("%s: %s is %v, and %v in the slice", file, name, at[name], attribute)
			}
		}
		if !strings.Contains(text, metadatav1beta1.SchemeGroupVersion.String()) {
			t.Errorf("%s is of another version: %s", file, text)
		}
	}
	first.unprepare()
	second.unprepare()
	for _, place := range []string{"cdi", "data/dra-device-metadata"} {
		entries, err := os.ReadDir(first.driver.Path(place))
		if err != nil || len(entries) > 0 {
			t.Errorf("%s: %v %v", place, err, entries)
		}
	}
}

// attributes of the device that the scheduler is told of.
func attributes(l *lease) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	const slices = "/apis/resource.k8s.io/v1/resourceslices"
	var found map[resourceapi.QualifiedName]resourceapi.DeviceAttribute
	rig.Until(l, "the slice", func() bool {
		for _, object := range l.api.List(slices) {
			var slice resourceapi.ResourceSlice
			l.api.Get(slices+"/"+object.GetName(), &slice)
			for _, device := range slice.Spec.Devices {
				found = device.Attributes
			}
		}
		return found != nil
	})
	return found
}
