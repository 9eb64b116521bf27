package level0

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"prezero.dev/kubernetes/internal/broker"
	"prezero.dev/kubernetes/internal/rig"
)

// broken is an API server behind a proxy that fails for pods while it is told to.
type broken struct{ *httptest.Server }

func (b broken) Kubeconfig(t testing.TB) string {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q}}]\nusers: [{name: u, user: {}}]\n"+
		"contexts: [{name: c, context: {cluster: c, user: u}}]\ncurrent-context: c\n", b.URL)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func pod(n *node, name string, uid types.UID, spec v1.PodSpec) {
	n.api.Put("/api/v1/namespaces/default/pods/"+name, &v1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: uid}, Spec: spec})
}

func ownerOf(t *testing.T, path string) uint32 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Uid
}

func TestALeaseHasNoOwnerUntilItsPodCanBeRead(t *testing.T) {
	b, api := rig.NewBroker(t, "64M", ""), rig.NewAPI(t)
	api.Kubeconfig(t)
	target, err := url.Parse(api.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy, status := httputil.NewSingleHostReverseProxy(target), http.StatusInternalServerError
	front := broken{httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status != 0 && strings.Contains(r.URL.Path, "/pods/") {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d}`, status)
			return
		}
		proxy.ServeHTTP(w, r)
	}))}
	t.Cleanup(func() { front.CloseClientConnections(); front.Close() })
	n := &node{t, api, b, rig.NewDriver(t, front, b.Socket, b.Files)}
	claim := n.claim(1, 4, "")
	ref := claim.Status.ReservedFor[0]
	pod(n, ref.Name, ref.UID, v1.PodSpec{SecurityContext: &v1.PodSecurityContext{RunAsUser: ptr.To[int64](1000)}})
	for _, status = range []int{http.StatusInternalServerError, http.StatusForbidden, http.StatusServiceUnavailable} {
		if _, err := n.driver.Prepare(claim); err == nil {
			t.Fatalf("prepared though the pod's read is answered %d", status)
		}
	}
	status = 0
	n.prepare(claim)
	if owner := ownerOf(t, n.file(claim)); owner != 1000 {
		t.Errorf("the lease is user %d's", owner)
	}
}

func TestAnInitContainerThatHasTheClaimOwnsTheLease(t *testing.T) {
	n := newNode(t, "64M", "")
	claim := n.claim(1, 4, "")
	ref := claim.Status.ReservedFor[0]
	pod(n, ref.Name, ref.UID, v1.PodSpec{ResourceClaims: []v1.PodResourceClaim{{Name: "ram", ResourceClaimName: &claim.Name}},
		InitContainers: []v1.Container{{Name: "sidecar", SecurityContext: &v1.SecurityContext{RunAsUser: ptr.To[int64](2000)},
			Resources: v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: "ram"}}}}},
		Containers: []v1.Container{{Name: "main"}}})
	n.prepare(claim)
	if owner := ownerOf(t, n.file(claim)); owner != 2000 {
		t.Errorf("the lease is user %d's", owner)
	}
}

func TestARecordThatCannotBeReadStopsNoOtherClaimAndIsMadeAnew(t *testing.T) {
	for _, text := range []string{"", "{", "\x00\x00\x00", "null", "{}", "[]", `{"uid":"another"}`} {
		n := newNode(t, "64M", "")
		lost, kept, other := n.claim(1, 4, ""), n.claim(2, 4, ""), n.claim(3, 4, "")
		for _, claim := range []*claimOf{lost, kept, other} {
			n.prepare(claim)
		}
		if err := os.WriteFile(n.file(kept), []byte("what the pod wrote"), 0); err != nil {
			t.Fatal(err)
		}
		for _, claim := range []*claimOf{lost, kept} {
			if err := os.WriteFile(n.driver.Path("data/claims/"+string(claim.UID)+"/claim.json"), []byte(text), 0o640); err != nil {
				t.Fatal(err)
			}
		}
		// The machine started anew.
		if err := os.Remove(n.file(lost)); err != nil {
			t.Fatal(err)
		}
		n.driver.Kill()
		n.driver.Start()
		if out, err := n.driver.Run("status"); err != nil || !strings.Contains(out, "default/claim-3") || !strings.Contains(out, string(lost.UID)) {
			t.Errorf("%q: %v\n%s", text, err, out)
		}
		n.prepare(lost)
		n.prepare(kept)
		if !isZero(t, n.file(lost)) || isZero(t, n.file(kept)) {
			t.Errorf("%q: a lease is another one", text)
		}
		for _, claim := range []*claimOf{lost, kept, other} {
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
	was := n.driver.LimitFiles(uint64(n.driver.Files()))
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
