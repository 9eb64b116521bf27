// Package level1 runs containers whose OCI configuration the CDI library edited as the driver says.
package level1

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	resourceapi "k8s.io/api/resource/v1"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"prezero.dev/kubernetes/internal/rig"
)

const mib = 1 << 20

type found struct {
	Bytes int
	Zero  bool
	User  int
	Node  string
}

// bundle is a container with nothing in it but the program.
func bundle(t *testing.T, change func(*oci.Spec)) string {
	t.Helper()
	dir := t.TempDir()
	// A user of another namespace must reach it.
	for at := dir; at != "/tmp" && at != "/"; at = filepath.Dir(at) {
		_ = os.Chmod(at, 0o755)
	}
	root := filepath.Join(dir, "rootfs")
	if err := os.MkdirAll(root, 0o755); err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(rig.Build(t, "prezero.dev/kubernetes/test/level1/inside", "netgo,osusergo"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "inside"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	make := exec.Command("runc", "spec")
	make.Dir = dir
	if out, err := make.CombinedOutput(); err != nil {
		t.Fatalf("runc spec: %v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var spec oci.Spec
	if err = json.Unmarshal(text, &spec); err != nil {
		t.Fatal(err)
	}
	spec.Process.Terminal, spec.Process.Args = false, []string{"/inside"}
	change(&spec)
	if len(spec.Linux.UIDMappings) > 0 {
		if err := os.Chown(root, int(spec.Linux.UIDMappings[0].HostID), int(spec.Linux.GIDMappings[0].HostID)); err != nil {
			t.Fatal(err)
		}
	}
	text, err = json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// mapped has the container in a user namespace, where root is the host's user 100000.
func mapped(spec *oci.Spec) {
	spec.Linux.Namespaces = append(spec.Linux.Namespaces, oci.LinuxNamespace{Type: oci.UserNamespace})
	mapping := []oci.LinuxIDMapping{{ContainerID: 0, HostID: 100_000, Size: 65_536}}
	spec.Linux.UIDMappings, spec.Linux.GIDMappings = mapping, mapping
}

// lease is a claim that is prepared, and what its CDI file says.
type lease struct {
	*testing.T
	claim  *resourceapi.ResourceClaim
	api    *rig.API
	driver *rig.Driver
	ids    []string
	cache  *cdi.Cache
}

// prepare has a driver of its own prepare a claim.
func prepare(t *testing.T, broker *rig.Broker, claim *resourceapi.ResourceClaim) *lease {
	t.Helper()
	api := rig.NewAPI(t)
	driver := rig.NewDriver(t, api, broker.Socket, broker.Files)
	// A user of another namespace must reach the socket.
	for _, dir := range []string{driver.Dir, driver.Path("data"), driver.Path("data/claims")} {
		_ = os.Chmod(dir, 0o755)
	}
	return (&lease{T: t, api: api, driver: driver}).beside(claim)
}

// beside prepares a claim by the same driver.
func (l *lease) beside(claim *resourceapi.ResourceClaim) *lease {
	t := l.T
	t.Helper()
	l = &lease{T: t, claim: claim, api: l.api, driver: l.driver}
	l.api.Put(rig.ClaimPath(claim), claim)
	rig.Until(t, "the claim is prepared", func() bool {
		var err error
		l.ids, err = l.driver.Prepare(claim)
		return err == nil
	})
	var err error
	if l.cache, err = cdi.NewCache(cdi.WithSpecDirs(l.driver.Path("cdi")), cdi.WithAutoRefresh(false)); err != nil {
		t.Fatal(err)
	}
	return l
}

// inject edits a container's configuration as its runtime would.
func (l *lease) inject(spec *oci.Spec) {
	l.Helper()
	if missing, err := l.cache.InjectDevices(spec, l.ids...); err != nil {
		l.Fatal(missing, err)
	}
}

func (l *lease) unprepare() {
	l.Helper()
	if err := l.driver.Unprepare(l.claim); err != nil {
		l.Fatal(err)
	}
}

func TestTheLeaseIsInTheContainer(t *testing.T) {
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip("skipped: no runc; apt-get install runc")
	}
	for number, c := range []struct {
		name       string
		parameters string
		change     func(*oci.Spec)
		user       int
	}{
		{"a file, as root", "", func(*oci.Spec) {}, 0},
		{"a file, as another user", "", func(spec *oci.Spec) { spec.Process.User = oci.User{UID: 1000, GID: 1000} }, 1000},
		{"a file, as a user that the claim names", `{"mode": "0600", "user": 1000, "group": 1000}`,
			func(spec *oci.Spec) { spec.Process.User = oci.User{UID: 1000, GID: 1000} }, 1000},
		{"a file of a tmpfs, in a user namespace", "", mapped, 0},
		{"a socket, as another user", `{"deliver": "socket"}`,
			func(spec *oci.Spec) { spec.Process.User = oci.User{UID: 1000, GID: 1000} }, 1000},
		{"a socket, in a user namespace", `{"deliver": "socket"}`, mapped, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			const size = 64
			broker := rig.NewBroker(t, "128M", "")
			lease := prepare(t, broker, rig.Claim(number, size, c.parameters))
			name := fmt.Sprintf("prezero-%d-%d", os.Getpid(), number)
			dir := bundle(t, func(spec *oci.Spec) {
				spec.Process.Env = append(spec.Process.Env, "WANT="+strconv.Itoa(size*mib))
				spec.Linux.CgroupsPath = "/" + name
				c.change(spec)
				lease.inject(spec)
			})
			run := exec.Command("runc", "run", "-b", dir, name)
			var stderr strings.Builder
			run.Stderr = &stderr
			out, err := run.Output()
			if err != nil {
				t.Fatalf("%v: %s%s", err, out, stderr.String())
			}
			var told found
			if err := json.Unmarshal(out, &told); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if told.Bytes != size*mib || !told.Zero || told.User != c.user || told.Node != "" && told.Node != "0" {
				t.Errorf("%+v", told)
			}
			lease.unprepare()
			if names := broker.Names(); len(names) > 0 {
				t.Error(names)
			}
		})
	}
}

// The broker pays: a container whose own memory is bounded below the lease uses all of it.
func TestAContainerIsNotChargedForItsLease(t *testing.T) {
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip("skipped: no runc; apt-get install runc")
	}
	const size, bound = 128, 48
	broker := rig.NewBroker(t, "256M", "")
	lease := prepare(t, broker, rig.Claim(99, size, ""))
	limit := int64(bound * mib)
	dir := bundle(t, func(spec *oci.Spec) {
		spec.Linux.CgroupsPath = fmt.Sprintf("/prezero-charge-%d", os.Getpid())
		spec.Linux.Resources.Memory = &oci.LinuxMemory{Limit: &limit}
		lease.inject(spec)
	})
	out, err := exec.Command("runc", "run", "-b", dir, fmt.Sprintf("prezero-charge-%d", os.Getpid())).CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"Zero":true`) {
		t.Fatalf("%v: %s", err, out)
	}
}
