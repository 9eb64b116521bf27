// Package manifests reads what is applied to a cluster, as strictly as an API server does.
package manifests

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"

	"prezero.dev/kubernetes/internal/params"
)

const dir = "../../manifests"

func objects(t *testing.T, path string) []runtime.Object {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	var all []runtime.Object
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		object, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		all = append(all, object)
	}
}

func files(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) == 0 {
		t.Fatal(pattern, err)
	}
	return found
}

func TestEveryFieldIsOneOfTheAPI(t *testing.T) {
	for _, folder := range []string{".", "removal", "preload"} {
		kustomization, err := os.ReadFile(filepath.Join(dir, folder, "kustomization.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files(t, filepath.Join(folder, "*.yaml")) {
			if name := filepath.Base(path); name != "kustomization.yaml" {
				objects(t, path)
				if !strings.Contains(string(kustomization), name) {
					t.Errorf("%s/kustomization.yaml lacks %s", folder, name)
				}
			}
		}
	}
	for _, path := range files(t, "samples/*.yaml") {
		objects(t, path)
	}
}

func TestEachExampleHasAPodThatUsesItsClaimAndParametersThatTheDriverTakes(t *testing.T) {
	for _, path := range files(t, "examples/*.yaml") {
		all := objects(t, path)
		if len(all) != 2 {
			t.Fatalf("%s has %d objects", path, len(all))
		}
		template := all[0].(*resourceapi.ResourceClaimTemplate)
		claim := &resourceapi.ResourceClaim{Spec: template.Spec.Spec}
		allocation := &resourceapi.AllocationResult{}
		for _, config := range claim.Spec.Devices.Config {
			allocation.Devices.Config = append(allocation.Devices.Config, resourceapi.DeviceAllocationConfiguration{
				Source: resourceapi.AllocationConfigSourceClaim, Requests: config.Requests, DeviceConfiguration: config.DeviceConfiguration})
		}
		claim.Status.Allocation = allocation
		sockets := map[string]bool{}
		for _, request := range claim.Spec.Devices.Requests {
			lease, err := params.For(claim, request.Name)
			if err != nil {
				t.Errorf("%s: %v", path, err)
			}
			if lease.Deliver == params.Socket {
				sockets["PREZERO_SOCKET_"+strings.ToUpper(request.Name)] = true
			}
		}
		// A rank of `--each` has a socket of its own: a socket has one lease.
		pod := all[1].(*v1.Pod)
		command := strings.Join(pod.Spec.Containers[0].Command, " ")
		if each := regexp.MustCompile(`--each (\d+)`).FindStringSubmatch(command); each != nil {
			named := regexp.MustCompile(`PREZERO_SOCKET_[A-Z0-9_]+`).FindAllString(command, -1)
			slices.Sort(named)
			if fmt.Sprint(len(sockets)) != each[1] || !slices.Equal(named, slices.Sorted(maps.Keys(sockets))) {
				t.Errorf("%s: --each %s, and sockets %v of %v", path, each[1], named, sockets)
			}
		}
	}
}

// set of a file, and its only container.
func set(t *testing.T, file string) (*appsv1.DaemonSet, v1.Container) {
	t.Helper()
	set := objects(t, filepath.Join(dir, file))[0].(*appsv1.DaemonSet)
	if len(set.Spec.Template.Spec.Containers) != 1 {
		t.Fatalf("%s has %d containers", file, len(set.Spec.Template.Spec.Containers))
	}
	return set, set.Spec.Template.Spec.Containers[0]
}

func TestOneDirectoryIsNamedToMountBrokerDriverAndRemoval(t *testing.T) {
	config, err := os.ReadFile(filepath.Join(dir, "prezerod.toml"))
	if err != nil {
		t.Fatal(err)
	}
	const files = "/run/prezero/2M"
	broker, _ := set(t, "broker.yaml")
	_, driver := set(t, "driver.yaml")
	removal := objects(t, filepath.Join(dir, "removal/removal.yaml"))[1].(*appsv1.DaemonSet)
	for what, text := range map[string]string{
		"prezerod.toml":      string(config),
		"the init container": broker.Spec.Template.Spec.InitContainers[0].Args[0],
		"the driver":         strings.Join(driver.Command, " "),
		"the removal":        strings.Join(removal.Spec.Template.Spec.InitContainers[0].Command, " "),
	} {
		if !strings.Contains(text, files) {
			t.Errorf("%s names another directory than %s", what, files)
		}
	}
	program := os.Getenv("PREZEROD")
	if _, err := os.Stat(program); err != nil {
		t.Skip("the configuration is not read: no prezerod; run `make build`, or set PREZEROD")
	}
	if out, err := exec.Command(program, "--check", filepath.Join(dir, "prezerod.toml")).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestAnUpdateOfTheDriverLeavesTheBrokerAlone(t *testing.T) {
	broker, prezerod := set(t, "broker.yaml")
	driver, dra := set(t, "driver.yaml")
	if prezerod.Image == dra.Image {
		t.Error("both have one image: an update of one ends the other, and the broker's stock")
	}
	rolling := driver.Spec.UpdateStrategy.RollingUpdate
	uid := slices.ContainsFunc(dra.Env, func(env v1.EnvVar) bool {
		return env.Name == "POD_UID" && env.ValueFrom.FieldRef.FieldPath == "metadata.uid"
	})
	if rolling.MaxUnavailable.IntValue() != 0 || rolling.MaxSurge == nil || !uid {
		t.Error("the new driver does not come before the old one goes")
	}
	for what, pod := range map[string]v1.PodSpec{"broker": broker.Spec.Template.Spec, "driver": driver.Spec.Template.Spec} {
		if pod.SecurityContext.SELinuxOptions == nil || pod.PriorityClassName != "system-node-critical" || pod.HostNetwork {
			t.Errorf("the %s: %+v", what, pod)
		}
	}
	if token := broker.Spec.Template.Spec.AutomountServiceAccountToken; token == nil || *token || broker.Spec.Template.Spec.ServiceAccountName != "" {
		t.Error("the broker's pod has a token of the API server")
	}
	pod, container := driver.Spec.Template.Spec, dra.SecurityContext
	if pod.HostPID || pod.SecurityContext.SeccompProfile.Type != v1.SeccompProfileTypeRuntimeDefault || container.Privileged != nil ||
		*container.AllowPrivilegeEscalation || !slices.Equal(container.Capabilities.Drop, []v1.Capability{"ALL"}) {
		t.Errorf("the driver: %+v %+v", pod.SecurityContext, container)
	}
}

// The library is a component: without it no driver has a right to namespaces, and no pod a library.
func TestTheLibraryIsOffUntilItsComponentIsNamed(t *testing.T) {
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("skipped: no kubectl")
	}
	built := func(folder string) string {
		t.Helper()
		out, err := exec.Command("kubectl", "kustomize", folder).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	const option = "--preload=/usr/local/lib/prezero/libprezero.so"
	if plain := built(dir); strings.Contains(plain, "--preload") || strings.Contains(plain, "namespaces") {
		t.Error("the library is on without its component")
	}
	// As the comment in the file says.
	copied := t.TempDir()
	if out, err := exec.Command("cp", "-r", dir+"/.", copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	file := filepath.Join(copied, "kustomization.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), "components: []", "components: [preload]", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	whole := built(copied)
	if strings.Count(whole, option) != 1 || !strings.Contains(whole, "- namespaces\n") {
		t.Errorf("the component lacks the library:\n%s", whole)
	}
	image, err := os.ReadFile("../../Containerfile")
	if err != nil || !strings.Contains(string(image), "libprezero.so /usr/local/lib/prezero/\n") {
		t.Error("the image has the library elsewhere")
	}
	if removal := built(filepath.Join(dir, "removal")); !strings.Contains(removal, "registry.example/prezero-dra") {
		t.Error(removal)
	}
}

func TestEvictionsLeaveBothAlone(t *testing.T) {
	budget := objects(t, filepath.Join(dir, "disruption.yaml"))[0].(*policyv1.PodDisruptionBudget)
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"broker.yaml", "driver.yaml"} {
		set, _ := set(t, file)
		if !selector.Matches(labels.Set(set.Spec.Template.Labels)) {
			t.Errorf("the budget leaves %s out", file)
		}
	}
	// A DaemonSet has no scale: the controller takes a number of pods, and no share.
	if budget.Spec.MaxUnavailable != nil || budget.Spec.MinAvailable.Type != intstr.Int {
		t.Error("no controller of a cluster can follow this budget")
	}
}

// The init container's script, in a mount namespace of its own and with another directory.
func TestASizeThatIsChangedIsAppliedAndFitsTheLimit(t *testing.T) {
	broker, prezerod := set(t, "broker.yaml")
	mount := broker.Spec.Template.Spec.InitContainers[0]
	of := resource.MustParse(mount.Env[0].Value + "i")
	limit := prezerod.Resources.Limits.Memory()
	if over := limit.Value() - of.Value(); mount.Env[0].Name != "SIZE" || over < 32<<20 || over > 128<<20 {
		t.Errorf("SIZE is %v, the broker's limit is %v", of.String(), limit)
	}
	if requested := prezerod.Resources.Requests.Memory(); requested.Cmp(*limit) != 0 {
		t.Errorf("the broker requests %v of %v: the scheduler counts what is leased elsewhere", requested, limit)
	}
	if os.Geteuid() != 0 {
		t.Skip("skipped: mounting needs root")
	}
	at := filepath.Join(t.TempDir(), "2M")
	script := strings.ReplaceAll(mount.Args[0], "/run/prezero/2M", at)
	var lines []string
	for _, size := range []string{"64M", "96M", "32M"} {
		lines = append(lines, "export SIZE="+size, script, "stat -f -c '%b*%S' "+at)
	}
	lines = append(lines, "findmnt -n "+at+" | wc -l")
	out, err := exec.Command("unshare", "-m", "sh", "-ec", strings.Join(lines, "\n")).CombinedOutput()
	if err != nil || string(out) != "16384*4096\n24576*4096\n8192*4096\n1\n" {
		t.Errorf("%v: %s", err, out)
	}
}
