package level2

import (
	"os"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"prezero.dev/kubernetes/internal/ledger"
	"prezero.dev/kubernetes/internal/rig"
)

// A scheduler waits for the lease, however long it takes, and the kubelet finds it.
func TestAPodIsBoundOnceItsLeaseIsReady(t *testing.T) {
	c := newCluster(t)
	c.installWith("binding")
	b := rig.NewBroker(t, "64M", "")
	c.node(rig.Node, "leases")
	s := &site{c, b, rig.NewDriver(t, c.member(rig.Node), b.Socket, b.Files, "--binding-conditions", "--absent", "1h")}
	s.published(64*mib, "")
	b.Kill()
	claim := s.claim(rig.Request("ram", "zero.prezero.dev", "4Mi"))
	s.ask(claim)
	s.run(pod("waits", "leases", claim.Name))
	var found *resourceapi.ResourceClaim
	s.until("the claim is allocated", func() bool {
		var err error
		found, err = s.ResourceV1().ResourceClaims(namespace).Get(ctx, claim.Name, get)
		return err == nil && found.Status.Allocation != nil
	})
	if waits := found.Status.Allocation.Devices.Results[0].BindingConditions; len(waits) != 1 {
		t.Fatalf("the scheduler waits for %v", waits)
	}
	if waiting, err := s.CoreV1().Pods(namespace).Get(ctx, "waits", get); err != nil || waiting.Spec.NodeName != "" {
		t.Fatalf("%v: bound without a lease, to %q", err, waiting.Spec.NodeName)
	}
	b.Start()
	s.bound("waits")
	info, err := os.Stat(ledger.File(b.Files, rig.LeaseOf(s, b.Files, found.UID)))
	if err != nil || info.Size() != 4*mib {
		t.Fatal("the pod is bound, and has no lease: ", info, err)
	}
	if found, _ = s.prepared(claim.Name); found.Status.Devices[0].Conditions[0].Type != "Ready" {
		t.Errorf("%+v", found.Status.Devices[0].Conditions)
	}
	if err := s.driver.Unprepare(found); err != nil {
		t.Fatal(err)
	}

	// What is refused is not bound, and says why.
	wrong := s.claim(rig.Request("ram", "zero.prezero.dev", "2Mi"))
	wrong.Spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: rig.Parameters(`{"deliver": "pigeon"}`)}}
	s.ask(wrong)
	s.run(pod("wrong", "leases", wrong.Name))
	s.until("the pod hears why", func() bool {
		refused, err := s.CoreV1().Pods(namespace).Get(ctx, "wrong", get)
		if err != nil || refused.Spec.NodeName != "" {
			t.Fatalf("%v: bound, to %q", err, refused.Spec.NodeName)
		}
		for _, condition := range refused.Status.Conditions {
			if strings.Contains(condition.Message, "pigeon") {
				return true
			}
		}
		return false
	})
}
