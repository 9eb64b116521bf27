package level0

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"prezero.dev/kubernetes/internal/rig"
)

// awaited is a claim whose pod the scheduler binds once its leases are ready.
func (n *node) awaited(number int, mib int64, parameters string) *resourceapi.ResourceClaim {
	claim := rig.Claim(number, mib, parameters)
	result := &claim.Status.Allocation.Devices.Results[0]
	result.BindingConditions, result.BindingFailureConditions = []string{"Ready"}, []string{"Refused"}
	n.api.Put(rig.ClaimPath(claim), claim)
	return claim
}

// says waits until a condition of the claim's device is true, and has its message.
func (n *node) says(claim *resourceapi.ResourceClaim, condition string) (why string) {
	n.Helper()
	rig.Until(n, "claim "+claim.Name+" is "+condition, func() bool {
		var stored resourceapi.ResourceClaim
		n.api.Get(rig.ClaimPath(claim), &stored)
		if len(stored.Status.Devices) != 1 {
			return false
		}
		found := apimeta.FindStatusCondition(stored.Status.Devices[0].Conditions, condition)
		if found != nil {
			why = found.Message
		}
		return found != nil && found.Status == "True"
	})
	return why
}

// forgets waits until a claim that no kubelet gives back has no record.
func (n *node) forgets(claim *resourceapi.ResourceClaim) {
	n.Helper()
	rig.Until(n, "claim "+claim.Name+" is given back", func() bool { return !slices.Contains(list(n, n.driver.Path("data/claims")), string(claim.UID)) })
}

func TestAClaimIsReadyBeforeItsPodIsBound(t *testing.T) {
	n := newNode(t, "64M", "", "--binding-conditions")
	rig.Until(t, "the scheduler is told to wait", func() bool {
		found := n.api.List("/apis/resource.k8s.io/v1/resourceslices")
		if len(found) != 1 {
			return false
		}
		raw, err := json.Marshal(found[0])
		return err == nil && strings.Contains(string(raw), `"bindingConditions":["Ready"],"bindingFailureConditions":["Refused"]`)
	})
	claim := n.awaited(1, 4, "")
	n.says(claim, "Ready")
	before, err := os.Stat(n.file(claim))
	if err != nil || !isZero(t, n.file(claim)) {
		t.Fatal("no lease that is zero: ", err)
	}
	n.prepare(claim)
	if after, err := os.Stat(n.file(claim)); err != nil || !os.SameFile(before, after) {
		t.Error("the kubelet got another lease: ", err)
	}
	n.books(claim)
	n.unprepare(claim)

	// What cannot be made, or is wrong, sends the pod to another node.
	for number, c := range []struct {
		mib             int64
		parameters, why string
	}{{128, "", "64M"}, {2, `{"deliver": "pigeon"}`, "pigeon"}} {
		claim := n.awaited(10+number, c.mib, c.parameters)
		if why := n.says(claim, "Refused"); !strings.Contains(why, c.why) {
			t.Errorf("%q lacks %q", why, c.why)
		}
		n.api.Delete(rig.ClaimPath(claim))
		n.forgets(claim)
	}
	n.nothingIsLeft()
}

// The scheduler takes back what its pod waited for, and no kubelet has heard of the claim.
func TestWhatAPodDidNotWaitForIsGivenBack(t *testing.T) {
	n := newNode(t, "64M", "", "--binding-conditions")
	for number, end := range []func(*resourceapi.ResourceClaim){
		func(claim *resourceapi.ResourceClaim) { n.api.Delete(rig.ClaimPath(claim)) },
		func(claim *resourceapi.ResourceClaim) {
			claim.Status = resourceapi.ResourceClaimStatus{}
			n.api.Put(rig.ClaimPath(claim), claim)
		},
	} {
		claim := n.awaited(number, 4, "")
		n.says(claim, "Ready")
		end(claim)
		n.forgets(claim)
	}
	n.nothingIsLeft()
}

func TestWithoutBindingConditionsThePodWaitsOnItsNode(t *testing.T) {
	api := rig.NewAPI(t)
	api.DropBinding.Store(true)
	b := rig.NewBroker(t, "64M", "")
	n := &node{t, api, b, rig.NewDriver(t, api, b.Socket, b.Files, "--binding-conditions")}
	rig.Until(t, "it hears so", func() bool { return n.driver.Said("takes no binding conditions") })
	claim := n.claim(1, 4, "")
	n.prepare(claim)
	n.unprepare(claim)
	n.nothingIsLeft()
	if writes := n.api.Writes.Load(); writes > 4 {
		t.Errorf("%d writes of slices: it writes again and again", writes)
	}
}
