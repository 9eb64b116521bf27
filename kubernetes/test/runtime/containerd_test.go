// Package runtime has a real containerd run pods whose claims the driver prepared. The test speaks CRI, as the kubelet does.
package runtime

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourceapi "k8s.io/api/resource/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"prezero.dev/kubernetes/internal/rig"
)

const mib = 1 << 20

var ctx = context.Background()

// containerd is one with a root of its own.
type containerd struct {
	testing.TB
	dir, bin string
	cri      cri.RuntimeServiceClient
	// NRI is its socket for plugins.
	NRI     string
	process *exec.Cmd
	pods    int
}

// programs of containerd: $CONTAINERD is their directory.
func programs(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip("skipped: no runc; apt-get install runc")
	}
	dir := os.Getenv("CONTAINERD")
	if _, err := os.Stat(filepath.Join(dir, "containerd")); dir == "" || err != nil {
		t.Skip("skipped: no containerd; `make -C kubernetes runtime` builds it")
	}
	return dir
}

// newContainerd starts one that finds CDI files in this directory.
func newContainerd(t testing.TB, cdi string) *containerd {
	t.Helper()
	bin := programs(t)
	// Short: the path of a socket is at most 107 bytes.
	dir, err := os.MkdirTemp("", "ctd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := &containerd{TB: t, dir: dir, NRI: filepath.Join(dir, "nri.sock")}
	config := rig.Containerd{Root: dir, CDI: cdi, NRI: c.NRI}.Config()
	if err := os.WriteFile(c.path("config.toml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	c.bin = bin
	c.start()
	t.Cleanup(c.end)
	conn, err := grpc.NewClient("unix://"+c.path("containerd.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c.cri = cri.NewRuntimeServiceClient(conn)
	c.ready()
	rig.WriteImage(t, c.path("image.tar"))
	load := exec.Command(filepath.Join(bin, "ctr"), "--address", c.path("containerd.sock"), "--namespace", "k8s.io", "images", "import",
		"--snapshotter", "native", "--local", c.path("image.tar"))
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return c
}

func (c *containerd) start() {
	c.Helper()
	c.process = exec.Command(filepath.Join(c.bin, "containerd"), "--config", c.path("config.toml"))
	c.process.Env = append(os.Environ(), "PATH="+c.bin+":"+os.Getenv("PATH"))
	c.process.Stderr = rig.NewLog(c, "containerd")
	if err := c.process.Start(); err != nil {
		c.Fatal(err)
	}
}

func (c *containerd) ready() {
	c.Helper()
	rig.Until(c, "containerd is ready", func() bool {
		status, err := c.cri.Status(ctx, &cri.StatusRequest{})
		return err == nil && len(status.Status.Conditions) > 0 && status.Status.Conditions[0].Status
	})
}

func (c *containerd) end() {
	_ = c.process.Process.Signal(os.Interrupt)
	_ = c.process.Wait()
}

// restart it: its containers run on.
func (c *containerd) restart() {
	c.Helper()
	c.end()
	c.start()
	c.ready()
}

func (c *containerd) path(name string) string { return filepath.Join(c.dir, name) }

// pod with one container, as the kubelet has it made.
type pod struct {
	*containerd
	sandbox *cri.PodSandboxConfig
	id      string
	// container, once it is made.
	container string
}

func (c *containerd) pod() *pod {
	c.Helper()
	c.pods++
	name := fmt.Sprint("pod-", c.pods)
	p := &pod{containerd: c, sandbox: &cri.PodSandboxConfig{LogDirectory: c.dir,
		Metadata: &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name},
		Linux: &cri.LinuxPodSandboxConfig{CgroupParent: "/prezero-test",
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: &cri.NamespaceOption{Network: cri.NamespaceMode_NODE}}}}}
	made, err := c.cri.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: p.sandbox})
	if err != nil {
		c.Fatal(err)
	}
	p.id = made.PodSandboxId
	c.Cleanup(p.remove)
	return p
}

// create its container, which may have these devices, and so much of huge pages.
func (p *pod) create(limit uint64, devices ...string) {
	p.Helper()
	config := &cri.ContainerConfig{Metadata: &cri.ContainerMetadata{Name: "c"}, Image: &cri.ImageSpec{Image: rig.Image},
		Command: []string{"/inside"}, Envs: []*cri.KeyValue{{Key: "WANT", Value: []byte("16777216")}}, LogPath: p.sandbox.Metadata.Name + ".log", Linux: &cri.LinuxContainerConfig{Resources: &cri.LinuxContainerResources{}}}
	for _, device := range devices {
		config.CDIDevices = append(config.CDIDevices, &cri.CDIDevice{Name: device})
	}
	if limit > 0 {
		config.Linux.Resources.HugepageLimits = []*cri.HugepageLimit{{PageSize: "2MB", Limit: limit}}
	}
	made, err := p.cri.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: p.id, Config: config, SandboxConfig: p.sandbox})
	if err != nil {
		p.Fatal(err)
	}
	p.container = made.ContainerId
}

// told is what the container says until it ends.
func (p *pod) told() string {
	p.Helper()
	if _, err := p.cri.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: p.container}); err != nil {
		p.Fatal(err)
	}
	rig.Until(p, "the container ends", func() bool {
		status, err := p.cri.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: p.container})
		return err == nil && status.Status.State == cri.ContainerState_CONTAINER_EXITED
	})
	text, err := os.ReadFile(p.path(p.sandbox.Metadata.Name + ".log"))
	if err != nil {
		p.Fatal(err)
	}
	return string(text)
}

// limit of the container's pages of 2 MiB, as runc is told; false: it is told none.
func (p *pod) limit() (uint64, bool) {
	p.Helper()
	status, err := p.cri.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: p.container, Verbose: true})
	if err != nil {
		p.Fatal(err)
	}
	var info struct {
		RuntimeSpec struct {
			Linux struct {
				Resources struct {
					HugepageLimits []struct {
						PageSize string
						Limit    uint64
					}
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(status.Info["info"]), &info); err != nil {
		p.Fatal(err)
	}
	for _, limit := range info.RuntimeSpec.Linux.Resources.HugepageLimits {
		if limit.PageSize == "2MB" {
			return limit.Limit, true
		}
	}
	return 0, false
}

func (p *pod) remove() {
	_, _ = p.cri.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.id})
	_, _ = p.cri.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.id})
}

// node has a containerd beside the rig's driver and broker.
type node struct {
	*containerd
	api    *rig.API
	driver *rig.Driver
}

func newNode(t testing.TB, broker *rig.Broker, args ...string) *node {
	t.Helper()
	cdi := t.TempDir()
	n := &node{containerd: newContainerd(t, cdi), api: rig.NewAPI(t)}
	n.driver = rig.NewDriver(t, n.api, broker.Socket, broker.Files, append([]string{"--nri", n.NRI, "--cdi", cdi}, args...)...)
	rig.Until(t, "the driver is a plugin of containerd", func() bool { return n.driver.Said("Started plugin") })
	return n
}

func (n *node) prepare(claim *resourceapi.ResourceClaim) []string {
	n.Helper()
	n.api.Put(rig.ClaimPath(claim), claim)
	var devices []string
	rig.Until(n, "the claim is prepared", func() bool {
		var err error
		devices, err = n.driver.Prepare(claim)
		return err == nil
	})
	return devices
}

func (n *node) unprepare(claim *resourceapi.ResourceClaim) {
	n.Helper()
	if err := n.driver.Unprepare(claim); err != nil {
		n.Fatal(err)
	}
}

func TestAPodOfContainerdHasItsLease(t *testing.T) {
	n := newNode(t, rig.NewBroker(t, "64M", ""))
	for number, parameters := range []string{"", `{"deliver": "socket"}`} {
		claim := rig.Claim(number, 16, parameters)
		devices := n.prepare(claim)
		p := n.pod()
		p.create(0, devices...)
		if told := p.told(); !strings.Contains(told, `"Bytes":16777216,"Zero":true`) {
			t.Errorf("%q: %s", parameters, told)
		}
		p.remove()
		n.unprepare(claim)
	}
}

// What a container runtime tells of a container is what the driver goes by: its CDI devices, before it applied them.
// The containers do not start here: that takes a controller of huge pages, which not every host has.
func TestTheLimitOfAContainerIsSetBackAndStockYieldsBeforeItStarts(t *testing.T) {
	b := rig.NewPoolBroker(t, 32, "limit = \"64M\"\n[[stock]]\nsize = \"8M\"\nkeep = 8\ntenant = \"kubernetes\"\n")
	n := newNode(t, b, "--node-allocatable")
	claim := rig.Claim(1, 8, "")
	devices := n.prepare(claim)
	with, without := n.pod(), n.pod()
	// As the kubelet raises it: 8 MiB for the lease, 8 of its own.
	with.create(16*mib, devices...)
	if limit, set := with.limit(); !set || limit != 8*mib {
		t.Errorf("the container with a lease may take %d bytes more (%v)", limit, set)
	}
	rig.Until(t, "stock is whole", func() bool { return b.Ready() >= 40*mib })
	without.create(24 * mib)
	if free := rig.FreePages(t); free < 16 {
		t.Errorf("%d pages are free when a container starts; it and the one before were promised 16", free)
	}
	if limit, set := without.limit(); !set || limit != 24*mib {
		t.Errorf("the container without a lease may take %d bytes (%v)", limit, set)
	}
	without.remove()
	with.remove()
	n.unprepare(claim)
	rig.Until(t, "stock is whole again", func() bool { return b.Ready() >= 56*mib })
}

// A containerd that starts anew tells a driver, and a driver that starts anew is told, of containers that run.
func TestContainersThatRunAreToldAfterARestart(t *testing.T) {
	b := rig.NewPoolBroker(t, 32, "limit = \"64M\"\n[[stock]]\nsize = \"8M\"\nkeep = 8\ntenant = \"kubernetes\"\n")
	n := newNode(t, b)
	p := n.pod()
	p.create(24 * mib)
	for _, restart := range []func(){func() { n.driver.Kill(); n.driver.Start() }, n.restart} {
		restart()
		rig.Until(t, "stock yields", func() bool { return rig.FreePages(t) >= 12 && b.Ready() >= 32*mib })
	}
	p.remove()
	rig.Until(t, "stock is whole", func() bool { return b.Ready() >= 56*mib })
}
