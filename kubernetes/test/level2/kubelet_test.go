package level2

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"prezero.dev/kubernetes/internal/rig"
)

const (
	// Lease of a pod in the guest, whose pool has these pages of 2 MiB: no two leases.
	guestLease, guestPages = 16 * mib, 12
	// An emulated machine takes minutes for what a real one does in seconds.
	guestPatience = 30 * time.Minute
)

const guestKubelet = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
runtimeRequestTimeout: 15m
failSwapOn: false
resolvConf: ""
# All of the guest's files lie in its memory.
localStorageCapacityIsolation: false
evictionHard: {memory.available: 1Mi}
`

const guestScript = `
mount -t cgroup2 cgroup2 /sys/fs/cgroup
hostname guest
echo "127.0.0.1 localhost" > /etc/hosts
touch /etc/resolv.conf
mkdir -p /run/prezero/2M /run/containerd /run/cdi /run/nri /var/lib/kubelet/plugins /var/lib/kubelet/plugins_registry
ln -s /run /var/run
echo %d > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
mount -t hugetlbfs -o pagesize=2M,mode=0700 none /run/prezero/2M
prezerod --config /etc/prezerod.toml --socket /run/prezero/prezerod.sock &
containerd --config /etc/containerd.toml &
until ctr --address /run/containerd/containerd.sock --namespace k8s.io images import --snapshotter native --local /image.tar; do sleep 1; done
prezero-dra --node guest --files /run/prezero/2M --kubeconfig /etc/kubeconfig &
kubelet --config /etc/kubelet.yaml --kubeconfig /etc/kubeconfig --hostname-override guest --node-labels group=guest --node-ip 10.0.2.15
`

// guest that is a node of a cluster.
type guest struct {
	*cluster
	*rig.Machine
}

// program of which this variable names the file, or its directory.
func program(t testing.TB, variable, name string) string {
	t.Helper()
	file := filepath.Join(os.Getenv(variable), name)
	if info, err := os.Stat(file); os.Getenv(variable) == "" || err != nil || info.IsDir() {
		t.Skipf("skipped: $%s is not set or lacks %q; `make -C kubernetes kubelet` builds it", variable, name)
	}
	return file
}

func newGuest(t testing.TB) guest {
	t.Helper()
	g := rig.NewGuest(t)
	g.Network()
	runc, err := exec.LookPath("runc")
	if err != nil {
		t.Skip("skipped: no runc; apt-get install runc")
	}
	programs := map[string]string{"runc": runc, "kubelet": program(t, "KUBELET", ""), "prezerod": rig.Prezerod(t), "prezero-dra": rig.Program(t)}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		programs[name] = program(t, "CONTAINERD", name)
	}
	for name, file := range programs {
		g.Add("/bin/"+name, file)
	}
	c := newCluster(t)
	c.install()
	image := c.path("image.tar")
	rig.WriteImage(t, image)
	text, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	g.File("/image.tar", 0o100644, text)
	_, port, _ := strings.Cut(c.address, ":")
	for name, text := range map[string]string{
		"kubelet.yaml":    guestKubelet,
		"kubeconfig":      kubeconfig(rig.HostOf+":"+port, "admin"),
		"containerd.toml": rig.Containerd{Root: "/run/containerd", CDI: "/run/cdi", NRI: "/run/nri/nri.sock"}.Config(),
		"prezerod.toml":   "[[tenant]]\nname = \"kubernetes\"\nusers = [0]\nfiles = [\"/run/prezero/2M\"]\n",
	} {
		g.File("/etc/"+name, 0o100600, []byte(text))
	}
	return guest{c, g.Start(3072, fmt.Sprintf(guestScript, guestPages))}
}

// until something is so; the test ends with the guest.
func (g guest) until(what string, isSo func() bool) {
	g.Helper()
	late := time.After(guestPatience)
	for !isSo() {
		select {
		case <-g.Ended:
			g.Fatalf("%s: the guest ended\n%s", what, g.Said())
		case <-late:
			g.Fatalf("%s: in vain for %v\n%s", what, guestPatience, g.Said())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// told is what the container of a pod with this claim wrote as its last words. Until then the claim's status tells of the
// lease; afterwards nothing is allocated to it.
func (g guest) told(claim *resourceapi.ResourceClaim) string {
	g.Helper()
	name := claim.Name
	g.ask(claim)
	asked := pod(name, "guest", name)
	asked.Spec.HostNetwork, asked.Spec.RestartPolicy = true, v1.RestartPolicyNever
	container := &asked.Spec.Containers[0]
	container.Image, container.ImagePullPolicy, container.Command = rig.Image, v1.PullNever, []string{"/inside"}
	container.Env = []v1.EnvVar{{Name: "WANT", Value: fmt.Sprint(guestLease)}, {Name: "TELL", Value: v1.TerminationMessagePathDefault}}
	g.run(asked)
	var told string
	known := false
	g.until("pod "+name+" ends", func() bool {
		if now, err := g.ResourceV1().ResourceClaims(namespace).Get(ctx, name, get); err == nil && len(now.Status.Devices) == 1 {
			known = true
		}
		now, err := g.CoreV1().Pods(namespace).Get(ctx, name, get)
		if err != nil || now.Status.Phase != v1.PodSucceeded && now.Status.Phase != v1.PodFailed {
			return false
		}
		for _, status := range now.Status.ContainerStatuses {
			if status.State.Terminated != nil {
				told = status.State.Terminated.Message
			}
		}
		return true
	})
	if !known {
		g.Errorf("the status of claim %s told of no lease", name)
	}
	return told
}

// A kubelet, containerd, runc, prezerod and the driver in a guest of QEMU's emulator, the API server and the scheduler
// on the host: nothing is played. The second pod runs if the first one's lease came back, and finds no byte of it.
func TestPodsOfAKubeletHaveTheirLeases(t *testing.T) {
	g := newGuest(t)
	g.until("the kubelet registers its node, and the driver publishes what it may lease", func() bool {
		slices, err := g.ResourceV1().ResourceSlices().List(ctx, list)
		return err == nil && len(slices.Items) == 1 && len(slices.Items[0].Spec.Devices) == 1
	})
	for _, deliver := range []string{"file", "socket"} {
		claim := g.claim(rig.Request("ram", "zero.prezero.dev", fmt.Sprint(guestLease)))
		claim.Name = deliver
		claim.Spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: rig.Parameters(fmt.Sprintf(`{"deliver": %q}`, deliver))}}
		if told := g.told(claim); !strings.Contains(told, fmt.Sprintf(`"Bytes":%d,"Zero":true`, guestLease)) {
			t.Fatalf("the pod with a %s found %q\n%s", deliver, told, g.Said())
		}
		for _, remove := range []func() error{
			func() error { return g.CoreV1().Pods(namespace).Delete(ctx, deliver, metav1.DeleteOptions{}) },
			func() error {
				return g.ResourceV1().ResourceClaims(namespace).Delete(ctx, deliver, metav1.DeleteOptions{})
			},
		} {
			if err := remove(); err != nil {
				t.Fatal(err)
			}
		}
		g.until("claim "+deliver+" is gone", func() bool {
			_, err := g.ResourceV1().ResourceClaims(namespace).Get(ctx, deliver, get)
			return apierrors.IsNotFound(err)
		})
	}
}
