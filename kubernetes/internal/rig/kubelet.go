package rig

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"prezero.dev/kubernetes/internal/ledger"
)

// Node is the name of the rig's node.
const Node = "node-1"

// Driver is a driver as a process, and the kubelet beside it.
type Driver struct {
	t       testing.TB
	program string
	Dir     string
	args    []string
	// Env is added to the environment of the next start.
	Env     []string
	pod     types.UID
	process *exec.Cmd
	log     *Log
	ended   chan error
	conn    *grpc.ClientConn
}

var builds sync.Map

// Build has a program of this module, built once for all tests of a package.
func Build(t testing.TB, path, tags string) string {
	t.Helper()
	type built struct {
		sync.Once
		program string
		err     error
	}
	entry, _ := builds.LoadOrStore(path, &built{})
	one := entry.(*built)
	one.Do(func() {
		dir, err := os.MkdirTemp("", "prezero-build")
		if err != nil {
			one.err = err
			return
		}
		one.program = filepath.Join(dir, filepath.Base(path))
		build := exec.Command("go", "build", "-tags", tags, "-o", one.program, path)
		if out, err := build.CombinedOutput(); err != nil {
			one.err = fmt.Errorf("%w\n%s", err, out)
		}
	})
	if one.err != nil {
		t.Fatal(one.err)
	}
	return one.program
}

// Program is the driver with its crash points: $PREZERO_DRA, or built here.
func Program(t testing.TB) string {
	t.Helper()
	if program := os.Getenv("PREZERO_DRA"); program != "" {
		return program
	}
	return Build(t, "prezero.dev/kubernetes/cmd/prezero-dra", "crash")
}

// Server is an API server: the rig's own, or a real one.
type Server interface {
	// Kubeconfig is a file with which the driver of the rig's node reaches it.
	Kubeconfig(t testing.TB) string
}

// NewDriver starts a driver beside that broker.
func NewDriver(t testing.TB, api Server, socket, files string, args ...string) *Driver {
	t.Helper()
	d := NewDriverBefore(t, api, socket, files, args...)
	d.Registered()
	return d
}

// NewDriverBefore starts one that need not serve the kubelet yet: see Registered.
func NewDriverBefore(t testing.TB, api Server, socket, files string, args ...string) *Driver {
	t.Helper()
	// Short: the path of a socket is at most 107 bytes.
	dir, err := os.MkdirTemp("", "dra")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, name := range []string{"data", "registry", "cdi"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d := &Driver{t: t, program: Program(t), Dir: dir}
	d.args = append([]string{"--node", Node, "--socket", socket, "--files", files, "--cdi", d.Path("cdi"), "--data", d.Path("data"),
		"--registry", d.Path("registry"), "--kubeconfig", api.Kubeconfig(t), "--metrics", "", "--nri", "", "--look", "50ms"}, args...)
	if n := slices.Index(args, "--pod-uid"); n >= 0 {
		d.pod = types.UID(args[n+1])
	}
	d.launch()
	t.Cleanup(d.Kill)
	return d
}

// Beside starts another instance of the same node, as a rolling update does: that of the pod with this UID.
func (d *Driver) Beside(pod types.UID) *Driver {
	d.t.Helper()
	other := &Driver{t: d.t, program: d.program, Dir: d.Dir, pod: pod}
	for n := 0; n < len(d.args); n++ {
		if d.args[n] == "--pod-uid" {
			n++
			continue
		}
		other.args = append(other.args, d.args[n])
	}
	other.args = append(other.args, "--pod-uid", string(pod))
	other.Start()
	d.t.Cleanup(other.Kill)
	return other
}

// Path below the driver's directory.
func (d *Driver) Path(name string) string { return filepath.Join(d.Dir, name) }

// Start it, or start it again; the kubelet is registered with it when this returns.
func (d *Driver) Start() {
	d.t.Helper()
	d.launch()
	d.Registered()
}

func (d *Driver) launch() {
	d.t.Helper()
	d.process = exec.Command(d.program, d.args...)
	d.process.Env = append(os.Environ(), d.Env...)
	d.log = NewLog(d.t, "prezero-dra")
	d.process.Stderr = d.log
	if err := d.process.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.ended = make(chan error, 1)
	go func(process *exec.Cmd, ended chan error) { ended <- process.Wait() }(d.process, d.ended)
}

// Registered waits until the kubelet is registered with it.
func (d *Driver) Registered() {
	d.t.Helper()
	Until(d.t, "the kubelet is registered with the driver", func() bool {
		select {
		case err := <-d.ended:
			d.process = nil
			d.t.Fatalf("the driver ended: %v", err)
		default:
		}
		return d.register()
	})
}

// register does as the kubelet does with a socket that it finds.
func (d *Driver) register() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	socket := "prezero.dev-reg.sock"
	if d.pod != "" {
		socket = kubeletplugin.RollingUpdateRegistrarSocketFile(d.Path("registry"), "prezero.dev", d.pod)
	}
	registrar, err := dial(d.Path("registry/" + socket))
	if err != nil {
		return false
	}
	defer registrar.Close()
	client := registerapi.NewRegistrationClient(registrar)
	info, err := client.GetInfo(ctx, &registerapi.InfoRequest{})
	if err != nil {
		return false
	}
	if _, err := client.NotifyRegistrationStatus(ctx, &registerapi.RegistrationStatus{PluginRegistered: true}); err != nil {
		return false
	}
	if d.conn != nil {
		_ = d.conn.Close()
	}
	d.conn, err = dial(info.Endpoint)
	return err == nil
}

func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// Kill it, as the kernel would.
func (d *Driver) Kill() {
	if d.process != nil {
		_ = d.process.Process.Kill()
		<-d.ended
		d.process = nil
	}
}

// Died waits until it has ended by itself.
func (d *Driver) Died() {
	d.t.Helper()
	select {
	case <-d.ended:
		d.process = nil
	case <-time.After(Patience):
		d.t.Fatal("the driver lives on")
	}
}

// Terminate it in order.
func (d *Driver) Terminate() {
	_ = d.process.Process.Signal(os.Interrupt)
	d.Died()
}

// Said tells whether the driver has logged these words since it started.
func (d *Driver) Said(words string) bool { return d.log.has(words) }

// Files that it has open.
func (d *Driver) Files() int {
	d.t.Helper()
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.process.Process.Pid))
	if err != nil {
		d.t.Fatal(err)
	}
	return len(files)
}

// LimitFiles that it may have open; what held before comes back.
func (d *Driver) LimitFiles(most uint64) uint64 {
	d.t.Helper()
	var was unix.Rlimit
	if err := unix.Prlimit(d.process.Process.Pid, unix.RLIMIT_NOFILE, nil, &was); err != nil {
		d.t.Fatal(err)
	}
	if err := unix.Prlimit(d.process.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: was.Max}, nil); err != nil {
		d.t.Fatal(err)
	}
	return was.Cur
}

// Run another command of the program.
func (d *Driver) Run(verb string) (string, error) {
	out, err := exec.Command(d.program, append([]string{verb}, d.args...)...).CombinedOutput()
	return string(out), err
}

// Prepare a claim as the kubelet does; the CDI devices, or why not.
func (d *Driver) Prepare(claim *resourceapi.ResourceClaim) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	request := &drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{{Uid: string(claim.UID), Name: claim.Name, Namespace: claim.Namespace}}}
	response, err := drapb.NewDRAPluginClient(d.conn).NodePrepareResources(ctx, request)
	if err != nil {
		return nil, err
	}
	answer, ok := response.Claims[string(claim.UID)]
	if !ok {
		return nil, fmt.Errorf("no answer about claim %s", claim.UID)
	}
	if answer.Error != "" {
		return nil, fmt.Errorf("%s", answer.Error)
	}
	var ids []string
	for _, device := range answer.Devices {
		ids = append(ids, device.CdiDeviceIds...)
	}
	return ids, nil
}

// Unprepare a claim as the kubelet does.
func (d *Driver) Unprepare(claim *resourceapi.ResourceClaim) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	request := &drapb.NodeUnprepareResourcesRequest{Claims: []*drapb.Claim{{Uid: string(claim.UID), Name: claim.Name, Namespace: claim.Namespace}}}
	response, err := drapb.NewDRAPluginClient(d.conn).NodeUnprepareResources(ctx, request)
	if err != nil {
		return err
	}
	answer, ok := response.Claims[string(claim.UID)]
	if !ok {
		return fmt.Errorf("no answer about claim %s", claim.UID)
	}
	if answer.Error != "" {
		return fmt.Errorf("%s", answer.Error)
	}
	return nil
}

// LeaseOf a claim: the name of the one that lies in a directory, or that it would have there.
func LeaseOf(t testing.TB, dir string, uid types.UID) string {
	t.Helper()
	found := (&ledger.Claim{UID: uid}).Lease(0)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if _, err := os.Lstat(ledger.File(dir, entry.Name())); err == nil && ledger.Owner(entry.Name()) == uid {
			found = entry.Name()
		}
	}
	return found
}

// ClaimPath of a claim in the API.
func ClaimPath(claim *resourceapi.ResourceClaim) string {
	return "/apis/resource.k8s.io/v1/namespaces/" + claim.Namespace + "/resourceclaims/" + claim.Name
}

// Claim of so many MiB, allocated as the scheduler would on the rig's node, reserved for a pod of its name.
func Claim(n int, mib int64, parameters string) *resourceapi.ResourceClaim {
	name := fmt.Sprintf("claim-%d", n)
	uid := types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", n))
	share := types.UID(fmt.Sprintf("10000000-0000-4000-8000-%012d", n))
	claim := &resourceapi.ResourceClaim{
		TypeMeta:   metav1.TypeMeta{Kind: "ResourceClaim", APIVersion: "resource.k8s.io/v1"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: uid},
		Status: resourceapi.ResourceClaimStatus{
			Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
				Results: []resourceapi.DeviceRequestAllocationResult{{
					Request: "ram", Driver: "prezero.dev", Pool: Node, Device: "node0-2mi", ShareID: &share,
					ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{"size": *resource.NewQuantity(mib<<20, resource.BinarySI)},
				}},
			}},
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: types.UID("pod-" + uid)}},
		},
	}
	if parameters != "" {
		claim.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{{
			Source: resourceapi.AllocationConfigSourceClaim, Requests: []string{"ram"},
			DeviceConfiguration: Parameters(parameters),
		}}
	}
	return claim
}

// Command runs the program with these words alone.
func Command(t testing.TB, words ...string) (string, error) {
	process := exec.Command(Program(t), words...)
	process.Env = []string{"PATH=" + os.Getenv("PATH")}
	out, err := process.CombinedOutput()
	return string(out), err
}
