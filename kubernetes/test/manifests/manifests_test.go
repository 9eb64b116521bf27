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

	admissionapi "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/authentication/user"
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
	for _, folder := range []string{".", "removal", "preload", "binding"} {
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
	// The init container mounts a tmpfs there, on the node.
	mounted, err := os.MkdirTemp("/dev/shm", "manifests")
	if err != nil {
		t.Skip(err)
	}
	defer os.RemoveAll(mounted)
	here := filepath.Join(t.TempDir(), "prezerod.toml")
	text := strings.ReplaceAll(string(config), files, mounted)
	if err := os.WriteFile(here, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(program, "--check", here).CombinedOutput(); err != nil {
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

// Without their components no driver has a right to namespaces or to all claims, and no pod a library.
func TestComponentsAreOffUntilTheyAreNamed(t *testing.T) {
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
	options := []string{"- --preload=/usr/local/lib/prezero/libprezero.so\n", "- --binding-conditions\n"}
	rights := []string{"  - namespaces\n  verbs:\n  - list\n  - watch\n", "  - resourceclaims\n  verbs:\n  - list\n  - watch\n"}
	plain := built(dir)
	for _, part := range append(options, rights...) {
		if strings.Contains(plain, part) {
			t.Errorf("on without its component: %s", part)
		}
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
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), "components: []", "components: [preload, binding]", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	whole := built(copied)
	for _, part := range append(options, rights...) {
		if strings.Count(whole, part) != 1 {
			t.Errorf("the components lack %s:\n%s", part, whole)
		}
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
	all := objects(t, filepath.Join(dir, "evictions.yaml"))
	policy, binding := all[0].(*admissionapi.ValidatingAdmissionPolicy), all[1].(*admissionapi.ValidatingAdmissionPolicyBinding)
	rule := policy.Spec.MatchConstraints.ResourceRules[0]
	if binding.Spec.PolicyName != policy.Name || !slices.Equal(rule.Resources, []string{"pods/eviction"}) || !slices.Equal(rule.Operations, []admissionapi.OperationType{admissionapi.Create}) {
		t.Error(rule)
	}
	selector, err := metav1.LabelSelectorAsSelector(policy.Spec.MatchConstraints.NamespaceSelector)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"broker.yaml", "driver.yaml"} {
		// Each namespace has the label of its name.
		if set, _ := set(t, file); !selector.Matches(labels.Set{v1.LabelMetadataName: set.Namespace}) {
			t.Errorf("the policy leaves %s out", file)
		}
	}
	namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "prezero"}}
	eviction := &policyv1.Eviction{TypeMeta: metav1.TypeMeta{Kind: "Eviction", APIVersion: "policy/v1"}}
	if refused := refusals(t, policy, namespace, eviction, nil, nil); len(refused) != 1 {
		t.Error(refused)
	}
}

// What a driver of a node may write of a claim, whatever the API server's version.
func TestTheDriverWritesOfItsOwnDevicesAlone(t *testing.T) {
	all := objects(t, filepath.Join(dir, "rbac.yaml"))
	policy := all[slices.IndexFunc(all, func(object runtime.Object) bool {
		policy, is := object.(*admissionapi.ValidatingAdmissionPolicy)
		return is && policy.Name == "prezero-dra-claims"
	})].(*admissionapi.ValidatingAdmissionPolicy)
	device := func(driver, pool string) resourceapi.AllocatedDeviceStatus {
		return resourceapi.AllocatedDeviceStatus{Driver: driver, Pool: pool, Device: "d"}
	}
	claim := func(change func(*resourceapi.ResourceClaimStatus)) *resourceapi.ResourceClaim {
		claim := &resourceapi.ResourceClaim{TypeMeta: metav1.TypeMeta{Kind: "ResourceClaim", APIVersion: "resource.k8s.io/v1"}}
		claim.Status = resourceapi.ResourceClaimStatus{
			Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
				{Request: "r", Driver: "gpu.example.com", Pool: "b", Device: "d"}}}},
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: "u"}},
			Devices:     []resourceapi.AllocatedDeviceStatus{device("gpu.example.com", "a"), device("prezero.dev", "b")},
		}
		change(&claim.Status)
		return claim
	}
	same := func(*resourceapi.ResourceClaimStatus) {}
	driver := func(node string) *user.DefaultInfo {
		info := &user.DefaultInfo{Name: "system:serviceaccount:prezero:prezero-dra"}
		if node != "" {
			info.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {node}}
		}
		return info
	}
	for what, c := range map[string]struct {
		node   string
		old    func(*resourceapi.ResourceClaimStatus)
		change func(*resourceapi.ResourceClaimStatus)
		why    string
	}{
		"its own device": {"a", same, func(s *resourceapi.ResourceClaimStatus) { s.Devices = append(s.Devices, device("prezero.dev", "a")) }, ""},
		"the first of a claim": {"a", func(s *resourceapi.ResourceClaimStatus) { s.Devices = nil },
			func(s *resourceapi.ResourceClaimStatus) {
				s.Devices = []resourceapi.AllocatedDeviceStatus{device("prezero.dev", "a")}
			}, ""},
		"an empty claim": {"a", func(s *resourceapi.ResourceClaimStatus) { *s = resourceapi.ResourceClaimStatus{} },
			func(s *resourceapi.ResourceClaimStatus) {
				*s = resourceapi.ResourceClaimStatus{Devices: []resourceapi.AllocatedDeviceStatus{device("prezero.dev", "a")}}
			}, ""},
		"no node":          {"", same, same, "a token without a node"},
		"no allocation":    {"a", same, func(s *resourceapi.ResourceClaimStatus) { s.Allocation = nil }, "the scheduler's"},
		"an allocation":    {"a", func(s *resourceapi.ResourceClaimStatus) { s.Allocation = nil }, same, "the scheduler's"},
		"another's driver": {"a", same, func(s *resourceapi.ResourceClaimStatus) { s.Allocation.Devices.Results[0].Driver = "prezero.dev" }, "the scheduler's"},
		"no reservation":   {"a", same, func(s *resourceapi.ResourceClaimStatus) { s.ReservedFor = nil }, "the scheduler's"},
		"another's device": {"a", same, func(s *resourceapi.ResourceClaimStatus) { s.Devices = s.Devices[1:] }, "not its own"},
		"another node's":   {"a", same, func(s *resourceapi.ResourceClaimStatus) { s.Devices = s.Devices[:1] }, "not its own"},
		"no devices":       {"a", same, func(s *resourceapi.ResourceClaimStatus) { s.Devices = nil }, "not its own"},
	} {
		namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
		refused := strings.Join(refusals(t, policy, namespace, claim(c.change), claim(c.old), driver(c.node)), "; ")
		if c.why == "" && refused != "" || !strings.Contains(refused, c.why) {
			t.Errorf("%s: refused %q", what, refused)
		}
	}
}

// As the level `restricted` of pod security asks, with which namespaces of tenants are labelled.
func TestExamplesAskForNoRights(t *testing.T) {
	for _, path := range files(t, "examples/*.yaml") {
		pod := objects(t, path)[1].(*v1.Pod)
		all := pod.Spec.SecurityContext
		if all == nil || all.RunAsNonRoot == nil || !*all.RunAsNonRoot || all.RunAsUser == nil || *all.RunAsUser == 0 ||
			all.SeccompProfile == nil || all.SeccompProfile.Type != v1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: the pod's security context", path)
		}
		for _, container := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
			own := container.SecurityContext
			if own == nil || own.AllowPrivilegeEscalation == nil || *own.AllowPrivilegeEscalation || own.Privileged != nil ||
				own.Capabilities == nil || !slices.Equal(own.Capabilities.Drop, []v1.Capability{"ALL"}) || len(own.Capabilities.Add) > 0 {
				t.Errorf("%s: container %s", path, container.Name)
			}
		}
		for _, volume := range pod.Spec.Volumes {
			if volume.HostPath != nil {
				t.Errorf("%s: volume %s is the host's", path, volume.Name)
			}
		}
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
