package level0

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"prezero.dev/kubernetes/internal/broker"
	"prezero.dev/kubernetes/internal/rig"
)

func TestAClaimIsPreparedOnceAndGivenBack(t *testing.T) {
	n := newNode(t, "64M", "")
	claim := n.claim(1, 4, `{"mode": "0640", "user": 1000, "group": 1001}`)
	ids := n.prepare(claim)
	if len(ids) != 2 || ids[0] != "prezero.dev/lease="+string(claim.UID)+"-0" || ids[1] != "prezero.dev/metadata="+string(claim.UID)+"_ram" {
		t.Fatal(ids)
	}
	info, err := os.Stat(n.file(claim))
	if err != nil {
		t.Fatal(err)
	}
	stat := info.Sys().(*syscall.Stat_t)
	if info.Mode().Perm() != 0o640 || stat.Uid != 1000 || stat.Gid != 1001 || info.Size() != 4*mib {
		t.Errorf("%v %d:%d %d", info.Mode(), stat.Uid, stat.Gid, info.Size())
	}
	if !isZero(t, n.file(claim)) {
		t.Error("a lease that is not zero")
	}
	if text := spec(n, claim); !strings.Contains(text, "PREZERO_LEASE=/run/prezero/leases/"+string(claim.UID)+"/ram") || !strings.Contains(text, n.file(claim)) {
		t.Error(text)
	}
	n.books(claim)

	// The kubelet may ask again, and another process may answer, though the pod has written to the lease and cut it.
	if err := os.WriteFile(n.file(claim), []byte("what the pod wrote"), 0o640); err != nil {
		t.Fatal(err)
	}
	inode := stat.Ino
	for _, restart := range []func(){func() {}, func() { n.driver.Kill(); n.driver.Start() }, func() { n.broker.Kill(); n.broker.Start() }} {
		restart()
		if again := n.prepare(claim); again[0] != ids[0] {
			t.Fatal(again)
		}
		info, err := os.Stat(n.file(claim))
		if err != nil || info.Sys().(*syscall.Stat_t).Ino != inode {
			t.Fatal("another lease for the same claim")
		}
	}
	rig.Until(t, "the claim's status tells of the lease", func() bool {
		var stored resourceapi.ResourceClaim
		n.api.Get(rig.ClaimPath(claim), &stored)
		return len(stored.Status.Devices) == 1 && strings.Contains(string(stored.Status.Devices[0].Data.Raw), `"pageSize":"2Mi"`)
	})
	if out, err := n.driver.Run("status"); err != nil || !strings.Contains(out, "default/claim-1") || !strings.Contains(out, "prepared") {
		t.Errorf("%v\n%s", err, out)
	}

	// After a start of the machine the kubelet asks again, and what was in memory is gone.
	if err := os.Remove(n.file(claim)); err != nil {
		t.Fatal(err)
	}
	n.prepare(claim)
	n.books(claim)

	n.unprepare(claim)
	n.unprepare(claim)
	n.nothingIsLeft()
}

func TestManyClaimsInARow(t *testing.T) {
	n := newNode(t, "128M", "[[stock]]\nsize = \"2M\"\nkeep = 4\ntenant = \"kubernetes\"\n")
	for i := range number("CLAIMS", 40) {
		claim := n.claim(i, 2, "")
		n.prepare(claim)
		if i%7 == 0 {
			n.books(claim)
		}
		n.unprepare(claim)
	}
	n.nothingIsLeft()
}

func TestClaimsAtOnceGetALeaseEach(t *testing.T) {
	n := newNode(t, "64M", "")
	claims := make([]*resourceapi.ResourceClaim, 12)
	done := make(chan struct{})
	for i := range claims {
		claims[i] = n.claim(i, 4, "")
		// The same claim twice: the kubelet of a driver that hung.
		for range 2 {
			go func() {
				defer func() { done <- struct{}{} }()
				rig.Until(t, "prepared", func() bool { _, err := n.driver.Prepare(claims[i]); return err == nil })
			}()
		}
	}
	for range 2 * len(claims) {
		<-done
	}
	n.books(claims...)
	for _, claim := range claims {
		n.unprepare(claim)
	}
	n.nothingIsLeft()
}

func TestWhatIsWrongWithAClaimIsSaidWithTheFieldAndTheMend(t *testing.T) {
	n := newNode(t, "16M", "", "--wait", "100ms")
	result := func(change func(*resourceapi.DeviceRequestAllocationResult)) func(*resourceapi.ResourceClaim) {
		return func(claim *resourceapi.ResourceClaim) { change(&claim.Status.Allocation.Devices.Results[0]) }
	}
	for number, c := range []struct {
		mib        int64
		parameters string
		change     func(*resourceapi.ResourceClaim)
		words      []string
	}{
		{4, `{"deliver": "pigeon"}`, nil, []string{"config[0].opaque.parameters.deliver", `"file" or "socket"`}},
		{4, `{"mode": "0999"}`, nil, []string{"parameters.mode", `"0660"`}},
		{4, `{"user": -1}`, nil, []string{"parameters.user", "from 0"}},
		{4, `{"colour": 1}`, nil, []string{"config[0].opaque.parameters", "colour", "give deliver, mode"}},
		{4, `[]`, nil, []string{"config[0].opaque.parameters"}},
		{3, "", nil, []string{"consumedCapacity.size", "no multiple of the page, 2Mi"}},
		{0, "", nil, []string{"consumedCapacity.size", "multiple"}},
		{4, "", result(func(r *resourceapi.DeviceRequestAllocationResult) { r.ConsumedCapacity = nil }), []string{"consumedCapacity", "give capacity.requests.size"}},
		{4, "", result(func(r *resourceapi.DeviceRequestAllocationResult) { r.Device = "gpu-1" }), []string{"results[0].device", "gpu-1"}},
		{4, "", result(func(r *resourceapi.DeviceRequestAllocationResult) { r.Device = "node0-1gi" }), []string{"multiple of the page, 1Gi"}},
		{1024, "", result(func(r *resourceapi.DeviceRequestAllocationResult) { r.Device = "node0-1gi" }), []string{"pages of 1Gi"}},
		{4, "", result(func(r *resourceapi.DeviceRequestAllocationResult) { r.Device = "node9-2mi" }), []string{"no node 9"}},
		{64, "", nil, []string{"64M asked", "mount it larger"}},
	} {
		claim := rig.Claim(number, c.mib, c.parameters)
		if c.change != nil {
			c.change(claim)
		}
		n.api.Put(rig.ClaimPath(claim), claim)
		_, err := n.driver.Prepare(claim)
		if err == nil {
			t.Errorf("%d: prepared", number)
			continue
		}
		for _, word := range c.words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%d: %v lacks %q", number, err, word)
			}
		}
		n.unprepare(claim)
	}
	rig.Until(t, "the pods hear of it", func() bool { return len(n.api.Events()) > 5 })
	n.nothingIsLeft()
}

func TestABrokerThatIsAwaySlowOrFullIsAnErrorAndTheNextTryGoesOn(t *testing.T) {
	n := newNode(t, "16M", "", "--wait", "200ms")
	first, second, third := n.claim(1, 8, ""), n.claim(2, 8, ""), n.claim(3, 8, "")
	n.broker.Kill()
	if _, err := n.driver.Prepare(first); err == nil || !strings.Contains(err.Error(), "does prezerod run?") {
		t.Fatal(err)
	}
	n.broker.Start()
	n.broker.Stop()
	began := time.Now()
	if _, err := n.driver.Prepare(first); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("a broker that is stopped held the kubelet for %v", took)
	}
	n.broker.Go()
	n.prepare(first)
	n.prepare(second)
	if _, err := n.driver.Prepare(third); err == nil || !strings.Contains(err.Error(), "8M asked, 0 free") {
		t.Fatal(err)
	}
	n.unprepare(first)
	n.prepare(third)
	n.unprepare(second)
	n.unprepare(third)
	n.nothingIsLeft()
}

func TestWhatIsNotReadyIsSaidWithTheTimeAndComesLater(t *testing.T) {
	n := newNode(t, "64M", "", "--wait", "0s")
	claim := n.claim(1, 8, "")
	_, err := n.driver.Prepare(claim)
	if err == nil || !strings.Contains(err.Error(), "not now") {
		t.Fatal(err)
	}
	rig.Until(t, "the pod hears of it", func() bool {
		for _, event := range n.api.Events() {
			if strings.Contains(event, "not now") && strings.Contains(event, claim.Name) {
				return true
			}
		}
		return false
	})
	n.prepare(claim)
	n.books(claim)
	n.unprepare(claim)
	n.nothingIsLeft()
}

func TestAClaimThatTwoPodsShareIsOneLeaseAndBothHearWhatIsWrong(t *testing.T) {
	n := newNode(t, "16M", "", "--wait", "100ms")
	shared := func(number int, mib int64) *resourceapi.ResourceClaim {
		claim := rig.Claim(number, mib, "")
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: "other", UID: "other"})
		n.api.Put(rig.ClaimPath(claim), claim)
		return claim
	}
	claim, large := shared(1, 4), shared(2, 64)
	first := n.prepare(claim)
	if err := os.WriteFile(n.file(claim), []byte("what the first pod wrote"), 0o600); err != nil {
		t.Fatal(err)
	}
	// The kubelet asks for each pod.
	if second := n.prepare(claim); second[0] != first[0] || isZero(t, n.file(claim)) {
		t.Error("the second pod has another lease than the first")
	}
	if _, err := n.driver.Prepare(large); err == nil {
		t.Fatal("64 MiB of 16 were leased")
	}
	rig.Until(t, "both pods hear why", func() bool {
		told := 0
		for _, event := range n.api.Events() {
			if strings.Contains(event, "64M asked") {
				told++
			}
		}
		return told == 2
	})
	n.unprepare(large)
	n.unprepare(claim)
	n.nothingIsLeft()
}

func TestTheSocketHandsTheLeaseOutOnceAndLivesThroughARestart(t *testing.T) {
	n := newNode(t, "64M", "")
	claim := n.claim(1, 4, `{"deliver": "socket"}`)
	n.prepare(claim)
	if text := spec(n, claim); !strings.Contains(text, "PREZERO_SOCKET=") || strings.Contains(text, "PREZERO_LEASE=") {
		t.Error(text)
	}
	socket := n.driver.Path("data/claims/" + string(claim.UID) + "/0/prezerod.sock")
	n.driver.Kill()
	n.driver.Start()
	take := func(want broker.Want) (*broker.Lease, error) {
		conn, err := broker.Dial(context.Background(), socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.Lease(context.Background(), want, 0)
	}
	want := broker.Want{Bytes: 4 * mib, Page: broker.Huge, Node: broker.AnyNode}
	if _, err := take(broker.Want{Bytes: 8 * mib, Page: broker.Huge}); err == nil || !strings.Contains(err.Error(), "ask for just that") {
		t.Fatal(err)
	}
	lease, err := take(want)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lease.File.Write([]byte("dirty")); err != nil {
		t.Fatal(err)
	}
	n.driver.Kill()
	n.driver.Start()
	n.prepare(claim)
	if _, err := take(want); err == nil || !strings.Contains(err.Error(), "taken before") {
		t.Fatal("a lease that was written to was handed out as zero")
	}
	n.unprepare(claim)
	_ = lease.File.Close()

	// Another lease of the same claim is zero again.
	n.prepare(claim)
	if err := os.Remove(n.file(claim)); err != nil {
		t.Fatal(err)
	}
	n.prepare(claim)
	if lease, err = take(want); err != nil {
		t.Fatal(err)
	}
	n.unprepare(claim)
	_ = lease.File.Close()
	n.nothingIsLeft()
}

func TestASweepGivesBackWhatNoClaimHas(t *testing.T) {
	n := newNode(t, "64M", "")
	stays, goes, changes, unknown := n.claim(1, 4, ""), n.claim(2, 4, ""), n.claim(3, 4, ""), n.claim(4, 4, "")
	for _, claim := range []*resourceapi.ResourceClaim{stays, goes, changes, unknown} {
		n.prepare(claim)
	}
	n.driver.Kill()
	n.api.Delete(rig.ClaimPath(goes))
	other := changes.DeepCopy()
	other.UID = "another-of-the-same-name"
	n.api.Put(rig.ClaimPath(changes), other)
	// Its record is lost.
	if err := os.RemoveAll(n.driver.Path("data/claims/" + string(unknown.UID))); err != nil {
		t.Fatal(err)
	}
	// The API server is away at first: nothing is thrown away meanwhile.
	n.api.Down.Store(true)
	n.driver.Start()
	if files := n.leases(); len(files) != 4 {
		t.Fatal(files)
	}
	n.api.Down.Store(false)
	rig.Until(t, "the sweep", func() bool { return len(n.leases()) == 1 })
	rig.Until(t, "its end", func() bool { return len(list(t, n.driver.Path("data/claims"))) == 1 })
	n.books(stays)
	n.unprepare(stays)
	n.nothingIsLeft()
}

func TestAClaimThatIsDeletedWhileItIsPreparedLeavesNothing(t *testing.T) {
	n := newNode(t, "64M", "")
	claim := n.claim(1, 8, "")
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = n.driver.Prepare(claim)
	}()
	n.api.Delete(rig.ClaimPath(claim))
	n.unprepare(claim)
	<-done
	// The kubelet unprepares what it has tried to prepare, in the end.
	n.unprepare(claim)
	n.nothingIsLeft()
}

func TestDrainTaintsWhatIsPublishedAndAnEndlessLookRewritesNothing(t *testing.T) {
	n := newNode(t, "64M", "", "--absent", "300ms")
	slices := "/apis/resource.k8s.io/v1/resourceslices"
	published := func(taint string) func() bool {
		return func() bool {
			for _, object := range n.api.List(slices) {
				var slice resourceapi.ResourceSlice
				n.api.Get(slices+"/"+object.GetName(), &slice)
				for _, device := range slice.Spec.Devices {
					capacity := device.Capacity["size"].Value
					if device.Name != "node0-2mi" || capacity.Value() != 64*mib || *device.Attributes["pageSize"].StringValue != "2Mi" {
						t.Fatalf("%+v", device)
					}
					if taint == "" && len(device.Taints) == 0 || len(device.Taints) == 1 && device.Taints[0].Key == "prezero.dev/"+taint {
						return true
					}
				}
			}
			return false
		}
	}
	rig.Until(t, "the device", published(""))
	writes := n.api.Writes.Load()
	claim := n.claim(1, 4, "")
	n.prepare(claim)
	n.unprepare(claim)
	time.Sleep(300 * time.Millisecond)
	if now := n.api.Writes.Load(); now != writes {
		t.Errorf("%d writes of slices though nothing changed", now-writes)
	}
	if out, err := n.driver.Run("drain"); err != nil {
		t.Fatal(err, out)
	}
	rig.Until(t, "the taint", published("draining"))
	if out, err := n.driver.Run("undrain"); err != nil {
		t.Fatal(err, out)
	}
	rig.Until(t, "no taint", published(""))
	n.broker.Kill()
	rig.Until(t, "the taint of a broker that is away", published("broker"))
	n.broker.Start()
	rig.Until(t, "no taint", published(""))
}

func TestMistakesInTheCommandLineAreOneLineWithTheMend(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		args  []string
		words string
	}{
		{[]string{"fly"}, "no such command"},
		{[]string{"--files", "relative"}, "absolute path"},
		{[]string{"--node", "n"}, "--files"},
		{[]string{"--node", "n", "--files", dir}, "run it in a pod, or give --kubeconfig"},
	} {
		out, err := rig.Command(t, c.args...)
		if err == nil || !strings.Contains(out, c.words) {
			t.Errorf("%v: %v: %s", c.args, err, out)
		}
	}
}
