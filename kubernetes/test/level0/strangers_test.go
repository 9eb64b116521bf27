package level0

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"prezero.dev/kubernetes/internal/broker"
	"prezero.dev/kubernetes/internal/driver"
	"prezero.dev/kubernetes/internal/linger"
	"prezero.dev/kubernetes/internal/places"
	"prezero.dev/kubernetes/internal/rig"
)

// Neither the pod's user nor its user namespace is known here: any user of the container may open the lease, and
// no process of the host that is not root's reaches it.
func TestALeaseIsOpenToAnyUserOfItsPodAndToNoOtherProcess(t *testing.T) {
	n := newNode(t, "64M", "")
	claim := n.claim(1, 4, "")
	n.prepare(claim)
	info, err := os.Stat(n.file(claim))
	if err != nil || info.Mode().Perm() != 0o666 {
		t.Errorf("%v %v", info, err)
	}
	asks := func(path string) error {
		read := exec.Command("cat", path)
		read.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		return read.Run()
	}
	if err := asks("/etc/hostname"); err != nil {
		t.Skip("skipped: another user cannot run cat: ", err)
	}
	if asks(n.file(claim)) == nil {
		t.Error("a user of the host reads the lease")
	}
	// Where it could, the driver does not serve.
	if err := os.Chmod(n.broker.Files, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := n.driver.Prepare(n.claim(2, 4, "")); err == nil || !strings.Contains(err.Error(), "mode=0700") {
		t.Error(err)
	}
}

func TestARecordThatCannotBeReadStopsNoOtherClaimAndIsMadeAnew(t *testing.T) {
	for _, text := range []string{"", "{", "\x00\x00\x00", "null", "{}", "[]", `{"uid":"another"}`, "no file"} {
		n := newNode(t, "64M", "")
		lost, kept, other, anew, larger := n.claim(1, 4, ""), n.claim(2, 4, ""), n.claim(3, 4, ""), n.claim(4, 4, ""), n.claim(5, 4, `{"deliver": "socket"}`)
		for _, claim := range []*claimOf{lost, kept, other, anew, larger} {
			n.prepare(claim)
		}
		for _, claim := range []*claimOf{kept, anew, larger} {
			file := n.open(claim)
			if _, err := file.WriteString("what pod A wrote"); err != nil {
				t.Fatal(err)
			}
			_ = file.Close()
		}
		for _, claim := range []*claimOf{lost, kept, anew, larger} {
			at := n.driver.Path("data/claims/" + string(claim.UID) + "/claim.json")
			err := os.WriteFile(at, []byte(text), 0o640)
			if text == "no file" {
				err = os.Remove(at)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		// These were allocated anew meanwhile, for pod B.
		anew.Status.Allocation.AllocationTimestamp = &metav1.Time{Time: time.Unix(9, 0)}
		larger.Status.Allocation.Devices.Results[0].ConsumedCapacity["size"] = *resource.NewQuantity(8*mib, resource.BinarySI)
		for _, claim := range []*claimOf{anew, larger} {
			n.api.Put(rig.ClaimPath(claim), claim)
		}
		// The machine started anew.
		if err := os.Remove(n.file(lost)); err != nil {
			t.Fatal(err)
		}
		n.driver.Kill()
		n.driver.Start()
		if out, err := n.driver.Run("status"); err != nil || !strings.Contains(out, "default/claim-3") || text != "no file" && !strings.Contains(out, string(lost.UID)) {
			t.Errorf("%q: %v\n%s", text, err, out)
		}
		for _, claim := range []*claimOf{lost, kept, anew, larger} {
			n.prepare(claim)
		}
		// A sweep gives back what has no record.
		if !isZero(t, n.file(lost)) || isZero(t, n.file(kept)) && text != "no file" {
			t.Errorf("%q: a lease is another one", text)
		}
		if !isZero(t, n.file(anew)) || !isZero(t, n.file(larger)) {
			t.Errorf("%q: pod B has what pod A wrote", text)
		}
		n.books(lost, kept, other, anew, larger)
		for _, claim := range []*claimOf{lost, kept, other, anew, larger} {
			n.unprepare(claim)
		}
		n.nothingIsLeft()
	}
}

func TestAnotherAllocationOfAClaimIsAnotherLease(t *testing.T) {
	for what, change := range map[string]func(*claimOf){
		"another size": func(c *claimOf) {
			c.Status.Allocation.Devices.Results[0].ConsumedCapacity["size"] = *resource.NewQuantity(16*mib, resource.BinarySI)
		},
		"another share": func(c *claimOf) {
			c.Status.Allocation.Devices.Results[0].ShareID = ptr.To(types.UID("99999999-0000-4000-8000-000000000001"))
		},
		"another time": func(c *claimOf) { c.Status.Allocation.AllocationTimestamp = &metav1.Time{Time: time.Unix(9, 0)} },
	} {
		n := newNode(t, "64M", "")
		claim := rig.Claim(1, 4, "")
		claim.Status.Allocation.AllocationTimestamp = &metav1.Time{Time: time.Unix(5, 0)}
		n.api.Put(rig.ClaimPath(claim), claim)
		n.prepare(claim)
		if err := os.WriteFile(n.file(claim), []byte("what pod A wrote"), 0); err != nil {
			t.Fatal(err)
		}
		again := claim.DeepCopy()
		change(again)
		n.api.Put(rig.ClaimPath(again), again)
		n.prepare(again)
		info, err := os.Stat(n.file(again))
		size := again.Status.Allocation.Devices.Results[0].ConsumedCapacity["size"]
		if err != nil || info.Size() != size.Value() || !isZero(t, n.file(again)) {
			t.Errorf("%s: %v %v; pod B has what pod A wrote", what, info, err)
		}
		n.unprepare(again)
		n.nothingIsLeft()
	}
}

func TestAnAnnotationThatIsNoNameNamesNothing(t *testing.T) {
	n := newNode(t, "64M", "")
	for _, known := range []string{strings.Repeat("x", 200_000), "../../../../etc", "a b", "\x1b[2J", "-"} {
		claim := n.claim(1, 4, "")
		claim.Annotations = map[string]string{"resource.kubernetes.io/pod-claim-name": known}
		n.api.Put(rig.ClaimPath(claim), claim)
		if _, err := n.driver.Prepare(claim); err == nil || !strings.Contains(err.Error(), "pod-claim-name") || len(err.Error()) > 1000 {
			t.Errorf("%.20q: %.200v", known, err)
		}
		n.unprepare(claim)
	}
	n.nothingIsLeft()
}

func TestASweepLeavesFilesOfOthersAlone(t *testing.T) {
	n := newNode(t, "64M", "")
	gone := n.claim(1, 4, "")
	n.prepare(gone)
	n.driver.Kill()
	n.api.Delete(rig.ClaimPath(gone))
	others := []string{"guest-image.1", "keep.me", "vm-7.0", "11111111-2222-4333-8444-555555555555.0", "claim-notes", "claim-of-somebody.txt"}
	for _, name := range others {
		if err := os.WriteFile(filepath.Join(n.broker.Files, name), []byte("not of Kubernetes"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n.driver.Start()
	rig.Until(t, "the sweep", func() bool { return len(list(t, n.driver.Path("data/claims"))) == 0 })
	for _, name := range others {
		if _, err := os.Stat(filepath.Join(n.broker.Files, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestWhatLiesInTheSocketsPlaceIsVerified(t *testing.T) {
	n := newNode(t, "64M", "")
	claim := n.claim(1, 4, `{"deliver": "socket"}`)
	n.prepare(claim)
	at := n.driver.Path("data/claims/" + string(claim.UID) + "/0/prezerod.sock")
	target := filepath.Join(t.TempDir(), "of-the-host")
	if err := os.WriteFile(target, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for what, put := range map[string]func(){
		"a link":           func() { must(os.Symlink(target, at)) },
		"a dangling link":  func() { must(os.Symlink("/nowhere", at)) },
		"a file":           func() { must(os.WriteFile(at, nil, 0o600)) },
		"a directory":      func() { must(os.MkdirAll(at+"/below", 0o755)) },
		"another's socket": func() { _, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: at, Net: "unixpacket"}); must(err) },
		"nothing":          func() {},
		"a pipe":           func() { must(syscall.Mkfifo(at, 0o600)) },
	} {
		for _, again := range []func(){func() {}, func() { n.driver.Kill(); n.driver.Start() }} {
			must(os.RemoveAll(at))
			put()
			again()
			n.prepare(claim)
			info, err := os.Lstat(at)
			if err != nil || info.Mode()&os.ModeSocket == 0 || info.Mode().Perm() != 0o666 {
				t.Fatalf("%s: %v %v", what, info, err)
			}
			conn, err := broker.Dial(context.Background(), at)
			must(err)
			_, err = conn.Lease(context.Background(), broker.Want{Bytes: 8 * mib, Page: broker.Huge, Node: broker.AnyNode}, 0)
			if err == nil || !strings.Contains(err.Error(), "ask for just that") {
				t.Fatalf("%s: another answers: %v", what, err)
			}
			must(conn.Close())
			if info, err := os.Stat(target); err != nil || info.Mode().Perm() != 0o600 {
				t.Fatalf("%s: a file of the host has changed: %v %v", what, info, err)
			}
		}
	}
}

func TestAPodThatOpensItsSocketOverAndOverCostsNobodyAnything(t *testing.T) {
	n := newNode(t, "64M", "")
	claim, other := n.claim(1, 4, `{"deliver": "socket"}`), n.claim(2, 4, `{"deliver": "socket"}`)
	n.prepare(claim)
	socket := func(claim *claimOf) string {
		return n.driver.Path("data/claims/" + string(claim.UID) + "/0/prezerod.sock")
	}
	before := n.driver.Files()
	var conns []net.Conn
	for range number("CONNECTIONS", 2000) {
		conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket(claim), Net: "unixpacket"})
		if err != nil {
			break
		}
		conns = append(conns, conn)
	}
	rig.Until(t, "the driver keeps few of them", func() bool { return n.driver.Files() < before+20 })
	n.prepare(other)
	take := func(claim *claimOf) {
		t.Helper()
		conn, err := broker.Dial(context.Background(), socket(claim))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		lease, err := conn.Lease(context.Background(), broker.Want{Bytes: 4 * mib, Page: broker.Huge, Node: broker.AnyNode}, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = lease.File.Close()
	}
	take(other)
	take(claim)
	for _, conn := range conns {
		_ = conn.Close()
	}
}

func TestASocketLivesThroughALackOfFiles(t *testing.T) {
	n := newNode(t, "64M", "")
	claim := n.claim(1, 4, `{"deliver": "socket"}`)
	n.prepare(claim)
	was := n.driver.LimitFiles(1)
	// Accepted by the kernel, and by the driver once it may open files again.
	conn, err := broker.Dial(context.Background(), n.driver.Path("data/claims/"+string(claim.UID)+"/0/prezerod.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	want := broker.Want{Bytes: 4 * mib, Page: broker.Huge, Node: broker.AnyNode}
	if _, err := conn.Lease(ctx, want, 0); err == nil {
		t.Fatal("a driver without files took a client: the test shows nothing")
	}
	n.driver.LimitFiles(was)
	rig.Until(t, "it takes clients again", func() bool {
		conn, err := broker.Dial(context.Background(), n.driver.Path("data/claims/"+string(claim.UID)+"/0/prezerod.sock"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		lease, err := conn.Lease(ctx, want, 0)
		if err == nil {
			_ = lease.File.Close()
		}
		return err == nil || strings.Contains(err.Error(), "taken before")
	})
}

// One pod's packets: what it sends takes an hour to close.
func TestAPodThatSendsDescriptorsStopsNobody(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := listener.Addr().String()
	_ = listener.Close()
	n := newNode(t, "64M", "", "--metrics", at, "--pod-uid", "pod-1")
	harms, file, socket := n.claim(1, 4, `{"deliver": "socket"}`), n.claim(2, 4, ""), n.claim(3, 4, `{"deliver": "socket"}`)
	for _, claim := range []*claimOf{harms, file, socket} {
		n.prepare(claim)
	}
	for range 8 {
		_ = linger.Send(t, n.driver.Path("data/claims/"+string(harms.UID)+"/0/prezerod.sock"))
	}
	client := http.Client{Timeout: rig.Patience}
	answer, err := client.Get("http://" + at + "/healthz")
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatal(answer, err)
	}
	_ = answer.Body.Close()
	another, again := n.claim(4, 4, ""), n.claim(5, 4, `{"deliver": "socket"}`)
	n.prepare(another)
	n.prepare(again)
	for _, claim := range []*claimOf{file, socket, harms, another, again} {
		n.unprepare(claim)
	}
	n.nothingIsLeft()
}

// A process outside the pod keeps the file from being opened.
func TestNoStrangerKeepsALeaseFromBeingGivenBack(t *testing.T) {
	n := newNode(t, "64M", "")
	claim := n.claim(1, 4, "")
	n.prepare(claim)
	stranger := n.open(claim)
	if _, err := unix.FcntlInt(stranger.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}
	n.unprepare(claim)
	// Once it lets the file go, nothing of it is left, though it has it open.
	if _, err := unix.FcntlInt(stranger.Fd(), unix.F_SETLEASE, unix.F_UNLCK); err != nil {
		t.Fatal(err)
	}
	rig.Until(t, "the lease is empty", func() bool {
		var stat syscall.Stat_t
		return syscall.Fstat(int(stranger.Fd()), &stat) == nil && stat.Blocks == 0
	})
	_ = stranger.Close()
	n.nothingIsLeft()
}

// What a pod says of its file's length is no size of a lease.
func TestALengthThatAPodInventsIsNoMetric(t *testing.T) {
	n := newNode(t, "64M", "")
	claim := n.claim(1, 4, "")
	n.prepare(claim)
	file := n.open(claim)
	for _, length := range []int64{1 << 60, 0} {
		if err := file.Truncate(length); err != nil {
			t.Fatal(err)
		}
		held := driver.Held([]places.Place{{Dir: n.broker.Files}})
		if held[n.broker.Files] != 4*mib {
			t.Errorf("%d of a lease of 4 MiB whose length is %d", held[n.broker.Files], length)
		}
	}
}

func TestWhatDescribesLeasesToTheRuntimeIsThereAfterAStart(t *testing.T) {
	n := newNode(t, "64M", "")
	file, socket := n.claim(1, 4, ""), n.claim(2, 4, `{"deliver": "socket"}`)
	texts := map[string]string{}
	for _, claim := range []*claimOf{file, socket} {
		n.prepare(claim)
		texts[claim.Name] = spec(n, claim)
	}
	n.driver.Kill()
	for _, name := range list(t, n.driver.Path("cdi")) {
		if err := os.Remove(filepath.Join(n.driver.Path("cdi"), name)); err != nil {
			t.Fatal(err)
		}
	}
	n.driver.Start()
	n.books(file, socket)
	for _, claim := range []*claimOf{file, socket} {
		if text := spec(n, claim); text != texts[claim.Name] {
			t.Errorf("%s, before %s", text, texts[claim.Name])
		}
		n.unprepare(claim)
	}
	n.nothingIsLeft()
}

// A container that starts again asks its socket again: what it had it lost.
func TestAContainerThatStartsAgainHasAnotherLease(t *testing.T) {
	n := newNode(t, "64M", "")
	claim := n.claim(1, 4, `{"deliver": "socket"}`)
	n.prepare(claim)
	take := func() (*broker.Lease, error) {
		t.Helper()
		conn, err := broker.Dial(context.Background(), n.driver.Path("data/claims/"+string(claim.UID)+"/0/prezerod.sock"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.Lease(context.Background(), broker.Want{Bytes: 4 * mib, Page: broker.Huge, Node: broker.AnyNode}, 0)
	}
	first, err := take()
	if err != nil {
		t.Fatal(err)
	}
	mapping, err := unix.Mmap(int(first.File.Fd()), 0, 4*mib, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	copy(mapping, "what the container wrote")
	_ = first.File.Close()
	taken := n.driver.Path("data/claims/" + string(claim.UID) + "/taken.0")
	if _, err := take(); err == nil || !strings.Contains(err.Error(), "ask again") {
		t.Fatal("it is given twice: ", err)
	}
	long := func() {
		if err := os.Chtimes(taken, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	long()
	if _, err := take(); err == nil || !strings.Contains(err.Error(), "a process has it") {
		t.Fatal("a lease that is mapped is given back: ", err)
	}
	if string(mapping[:8]) != "what the" {
		t.Fatal("what a process has is gone")
	}
	if err := unix.Munmap(mapping); err != nil {
		t.Fatal(err)
	}
	long()
	again, err := take()
	if err != nil {
		t.Fatal(err)
	}
	_ = again.File.Close()
	if !isZero(t, n.file(claim)) {
		t.Error("what the container wrote is in its new lease")
	}
	n.books(claim)
	n.unprepare(claim)
	n.nothingIsLeft()
}
