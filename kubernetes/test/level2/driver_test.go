package level2

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"prezero.dev/kubernetes/internal/ledger"
	"prezero.dev/kubernetes/internal/rig"
)

const mib = 1 << 20

// site is the rig's node in a cluster: a broker, and a driver with the rights that the manifests give it.
type site struct {
	*cluster
	broker *rig.Broker
	driver *rig.Driver
}

func newSite(t *testing.T, size string, args ...string) *site {
	return newSiteOf(t, newCluster(t), size, args...)
}

func newSiteOf(t *testing.T, c *cluster, size string, args ...string) *site {
	b := rig.NewBroker(t, size, "")
	c.install()
	c.node(rig.Node, "leases")
	return &site{c, b, rig.NewDriver(t, c.member(rig.Node), b.Socket, b.Files, args...)}
}

// slices of the driver.
func (s *site) slices() []resourceapi.ResourceSlice {
	s.Helper()
	found, err := s.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: "spec.driver=prezero.dev"})
	if err != nil {
		s.Fatal(err)
	}
	return found.Items
}

// published waits until the scheduler is told of so much, with this taint.
func (s *site) published(bytes int64, taint string) resourceapi.ResourceSlice {
	s.Helper()
	var slice resourceapi.ResourceSlice
	s.until("a slice of the node", func() bool {
		found := s.slices()
		if len(found) != 1 || len(found[0].Spec.Devices) != 1 {
			return false
		}
		slice = found[0]
		device := slice.Spec.Devices[0]
		size := device.Capacity["size"].Value
		is := slices.ContainsFunc(device.Taints, func(t resourceapi.DeviceTaint) bool { return t.Key == "prezero.dev/"+taint })
		return size.Value() == bytes && (taint == "" && len(device.Taints) == 0 || is)
	})
	return slice
}

// lease has a pod scheduled and its claim prepared, as the scheduler and the kubelet do. The claim has parameters.
func (s *site) lease(name, size string) (*resourceapi.ResourceClaim, string) {
	s.Helper()
	claim := s.claim(rig.Request("ram", "zero.prezero.dev", size))
	claim.Name = name
	claim.Spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: rig.Parameters(`{"deliver": "file"}`)}}
	s.ask(claim)
	s.run(pod(name, "leases", name))
	s.bound(name)
	return s.prepared(name)
}

func (s *site) prepared(claim string) (*resourceapi.ResourceClaim, string) {
	s.Helper()
	found, err := s.ResourceV1().ResourceClaims(namespace).Get(ctx, claim, get)
	if err != nil {
		s.Fatal(err)
	}
	rig.Until(s, "claim "+claim+" is prepared", func() bool { _, err = s.driver.Prepare(found); return err == nil })
	return found, ledger.File(s.broker.Files, rig.LeaseOf(s, s.broker.Files, found.UID))
}

func TestAPodOfAClusterGetsItsLease(t *testing.T) {
	s := newSite(t, "64M")
	slice := s.published(64*mib, "")
	if len(slice.OwnerReferences) != 1 || slice.OwnerReferences[0].Kind != "Node" {
		t.Errorf("the slice stays when its node goes: %+v", slice.OwnerReferences)
	}
	claim, file := s.lease("one", "4Mi")
	if info, err := os.Stat(file); err != nil || info.Size() != 4*mib {
		t.Fatal(info, err)
	}
	s.until("the claim's status tells of the lease", func() bool {
		found, err := s.ResourceV1().ResourceClaims(namespace).Get(ctx, claim.Name, get)
		return err == nil && len(found.Status.Devices) == 1 && strings.Contains(string(found.Status.Devices[0].Data.Raw), `"bytes":4194304`) &&
			found.Status.Devices[0].Conditions[0].Status == metav1.ConditionTrue
	})
	// What the API server has does not fit: the pod hears why, and from whom.
	s.lease("two", "40Mi")
	s.refuses("three", `{"deliver": "pigeon"}`, `config[0].opaque.parameters.deliver: "pigeon"`)
	if err := s.driver.Unprepare(claim); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the lease is still there")
	}
}

// refuses a claim with these parameters, which the pod is told twice: as an event that counts.
func (s *site) refuses(name, parameters, why string) {
	s.Helper()
	claim := s.claim(rig.Request("ram", "zero.prezero.dev", "2Mi"))
	claim.Name = name
	claim.Spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: rig.Parameters(parameters)}}
	s.ask(claim)
	s.run(pod(name, "leases", name))
	s.bound(name)
	found, err := s.ResourceV1().ResourceClaims(namespace).Get(ctx, name, get)
	if err != nil {
		s.Fatal(err)
	}
	for range 2 {
		if _, err := s.driver.Prepare(found); err == nil || !strings.Contains(err.Error(), why) {
			s.Errorf("%v lacks %q", err, why)
		}
	}
	s.until("pod "+name+" hears why", func() bool {
		events, err := s.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name + ",reason=PrezeroLease"})
		if err != nil || len(events.Items) == 0 {
			return false
		}
		event := events.Items[0]
		return strings.Contains(event.Message, why) && event.Type == v1.EventTypeWarning && event.Source.Host == rig.Node && event.Count == 2
	})
}

func TestASliceIsWrittenWhenWhatItSaysChangesAndAtNoOtherTime(t *testing.T) {
	s := newSite(t, "64M", "--absent", "1s")
	slice := s.published(64*mib, "")
	claim, _ := s.lease("one", "4Mi")
	if err := s.driver.Unprepare(claim); err != nil {
		t.Fatal(err)
	}
	// Twenty looks and more.
	time.Sleep(1200 * time.Millisecond)
	if now := s.slices()[0]; now.ResourceVersion != slice.ResourceVersion {
		t.Errorf("rewritten, though nothing changed: %+v", now)
	}
	if err := unix.Mount("", s.broker.Files, "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, "mode=0700,size=96M"); err != nil {
		t.Fatal(err)
	}
	grown := s.published(96*mib, "")
	if grown.Name != slice.Name || grown.Spec.Pool.Generation == 0 {
		t.Errorf("%+v", grown)
	}
	// A restart finds what it would write.
	s.driver.Kill()
	s.driver.Start()
	time.Sleep(500 * time.Millisecond)
	if now := s.slices(); len(now) != 1 || now[0].ResourceVersion != grown.ResourceVersion {
		t.Errorf("rewritten by a restart: %+v", now)
	}
	s.broker.Kill()
	s.published(96*mib, "broker")
	s.broker.Start()
	s.published(96*mib, "")
	// The administrator removes it.
	if err := s.ResourceV1().ResourceSlices().Delete(ctx, slice.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.published(96*mib, "")
}

func TestAnAPIServerThatGoesAwayAndReturnsCostsNothing(t *testing.T) {
	s := newSite(t, "64M")
	slice := s.published(64*mib, "")
	stays, file := s.lease("stays", "4Mi")
	goes, other := s.lease("goes", "4Mi")
	late := s.claim(rig.Request("ram", "zero.prezero.dev", "4Mi"))
	late.Name = "late"
	s.ask(late)
	s.run(pod("late", "leases", "late"))
	s.bound("late")
	late, _ = s.ResourceV1().ResourceClaims(namespace).Get(ctx, "late", get)
	s.api.kill()
	// What is asked now is an error, and makes nothing.
	if _, err := s.driver.Prepare(late); err == nil {
		t.Error("prepared a claim that nobody could look up")
	}
	if err := s.driver.Unprepare(goes); err != nil {
		t.Errorf("a claim is not given back: %v", err)
	}
	// A driver that starts meanwhile serves the kubelet, and gives nothing back of its own accord.
	s.driver.Kill()
	s.driver.Start()
	time.Sleep(300 * time.Millisecond)
	if _, err := os.Stat(file); err != nil {
		t.Error("the lease is lost")
	}
	if _, err := os.Stat(other); err == nil {
		t.Error("the other lease is still there")
	}
	s.api.start()
	s.answers()
	s.prepared("late")
	s.prepared(stays.Name)
	if names := s.broker.Names(); len(names) != 2 {
		t.Errorf("%v", names)
	}
	if now := s.slices(); len(now) != 1 || now[0].ResourceVersion != slice.ResourceVersion {
		t.Errorf("%+v", now)
	}
	if err := s.driver.Unprepare(stays); err != nil {
		t.Fatal(err)
	}
	if err := s.driver.Unprepare(late); err != nil {
		t.Fatal(err)
	}
	if names := s.broker.Names(); len(names) != 0 {
		t.Errorf("%v", names)
	}
}

// withdraws what it published, when nothing is left to lease: the mount has no whole page.
func (s *site) withdraws() {
	s.Helper()
	for _, name := range s.broker.Names() {
		if err := os.Remove(ledger.File(s.broker.Files, name)); err != nil {
			s.Fatal(err)
		}
	}
	s.broker.Kill()
	rig.Until(s, "the mount is empty", func() bool { return s.broker.Used() == 0 })
	if err := unix.Mount("", s.broker.Files, "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, "mode=0700,size=1M"); err != nil {
		s.Fatal(err)
	}
	s.until("the node publishes no device", func() bool {
		found := s.slices()
		return len(found) == 0 || len(found) == 1 && len(found[0].Spec.Devices) == 0
	})
}
