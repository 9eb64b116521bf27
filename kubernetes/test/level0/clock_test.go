package level0

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	resourceapi "k8s.io/api/resource/v1"

	"prezero.dev/kubernetes/internal/rig"
)

// The machine's clock goes an hour forward and back: in a guest, since it is the clock of all programs.
func TestAClockThatIsSetLosesNothing(t *testing.T) {
	if os.Getenv("GUEST") != "" {
		clockIsSet(t)
		return
	}
	guest := rig.NewGuest(t)
	guest.Add("/test", os.Args[0])
	guest.Add("/prezerod", rig.Prezerod(t))
	guest.Add("/prezero-dra", rig.Program(t))
	said := guest.Run("GUEST=yes PREZEROD=/prezerod PREZERO_DRA=/prezero-dra /test -test.v -test.run '^" + t.Name() + "$'")
	if !strings.Contains(said, "--- PASS: "+t.Name()) {
		t.Error(said)
	}
}

func clockIsSet(t *testing.T) {
	n := newNode(t, "64M", "[[stock]]\nsize = \"4M\"\nkeep = 2\ntenant = \"kubernetes\"\n", "--absent", "5s")
	stays := n.claim(1, 4, "")
	n.prepare(stays)
	rig.Until(t, "a slice", func() bool { return n.api.Writes.Load() > 0 })
	tainted := func() bool {
		for _, object := range n.api.List("/apis/resource.k8s.io/v1/resourceslices") {
			var slice resourceapi.ResourceSlice
			n.api.Get("/apis/resource.k8s.io/v1/resourceslices/"+object.GetName(), &slice)
			for _, device := range slice.Spec.Devices {
				return len(device.Taints) > 0
			}
		}
		return false
	}
	for number, jump := range []time.Duration{time.Hour, -2 * time.Hour, time.Hour} {
		during, after := n.claim(10+number, 8, ""), n.claim(20+number, 4, "")
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			_, _ = n.driver.Prepare(during)
		}()
		writes := n.api.Writes.Load()
		set(t, jump)
		<-asked
		n.prepare(during)
		n.prepare(after)
		n.prepare(stays)
		n.books(stays, during, after)
		// Some looks.
		time.Sleep(300 * time.Millisecond)
		if now := n.api.Writes.Load(); now != writes {
			t.Errorf("%v: slices were written %d times though nothing changed but the clock", jump, now-writes)
		}
		n.unprepare(during)
		n.unprepare(after)
		n.books(stays)
	}
	// A broker that goes away is missed after the same time.
	n.broker.Kill()
	set(t, -time.Hour)
	rig.Until(t, "a broker that is away is missed", tainted)
	n.broker.Start()
	set(t, time.Hour)
	rig.Until(t, "a broker that is back", func() bool { return !tainted() })
	// A driver that starts anew keeps what there is.
	n.driver.Kill()
	set(t, -time.Hour)
	n.driver.Start()
	n.prepare(stays)
	n.books(stays)
	n.unprepare(stays)
	n.nothingIsLeft()
}

// set the machine's clock so much forward.
func set(t *testing.T, jump time.Duration) {
	t.Helper()
	now := unix.NsecToTimespec(time.Now().Add(jump).UnixNano())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &now); err != nil {
		t.Fatal(err)
	}
}
