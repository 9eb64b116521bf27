package level0

import (
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"prezero.dev/kubernetes/internal/places"
)

// The kernel maps a lease in huge pages though nobody asks for them, and what it would map in small ones is said.
func TestALeaseIsMappedInHugePagesOrThePodHearsOfIt(t *testing.T) {
	const size = 64
	n := newNode(t, "128M", "")
	claim, small := n.claim(1, size, ""), n.claim(2, 4, "")
	n.prepare(claim)
	file := n.open(claim)
	memory, err := unix.Mmap(int(file.Fd()), 0, size*mib, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	faults := func() int64 {
		var usage syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
			t.Fatal(err)
		}
		return usage.Minflt
	}
	before := faults()
	for at := 0; at < len(memory); at += 4096 {
		memory[at] = 1
	}
	// The test's own faults are some; small pages would be 16384. Around a fault the kernel maps up to 16 of those.
	if took := faults() - before; took > 16384/16/2 {
		t.Errorf("%d faults for %d huge pages", took, size/2)
	}
	_ = unix.Munmap(memory)
	status := func() string {
		out, err := n.driver.Run("status")
		if err != nil {
			t.Fatal(err, out)
		}
		return out
	}
	if out := status(); strings.Contains(out, "small pages") {
		t.Error(out)
	}
	// A file system whose huge pages are taken away, as one of an older broker has.
	place, err := places.Of(n.broker.Files)
	if err != nil {
		t.Fatal(err)
	}
	n.prepare(small)
	at := strings.TrimSuffix(n.file(small), "/lease")
	if err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "huge=never"); err != nil {
		t.Fatal(err)
	}
	if found := (places.Host{Sys: "/sys"}).Small(place); len(found) != 1 || !strings.HasSuffix(at, found[0].Name) {
		t.Errorf("%v", found)
	}
	if out := status(); strings.Count(out, "mapped in small pages") != 1 || !strings.Contains(out, "claim-"+string(small.UID)) {
		t.Error(out)
	}
	n.unprepare(claim)
	n.unprepare(small)
	n.nothingIsLeft()
}
