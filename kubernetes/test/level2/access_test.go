package level2

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"prezero.dev/kubernetes/internal/rig"
)

const (
	manifests = "../../manifests"
	account   = "system:serviceaccount:prezero:prezero-dra"
)

// install applies the manifests, as `kubectl apply -k` does.
func (c *cluster) install() { c.kustomize(manifests) }

// installWith a component.
func (c *cluster) installWith(component string) {
	c.Helper()
	dir := filepath.Join(c.TempDir(), "manifests")
	if err := os.CopyFS(dir, os.DirFS(manifests)); err != nil {
		c.Fatal(err)
	}
	file := filepath.Join(dir, "kustomization.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		c.Fatal(err)
	}
	write(c, file, strings.Replace(string(text), "components: []", "components: ["+component+"]", 1))
	c.kustomize(dir)
}

func (c *cluster) kustomize(dir string) {
	c.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		c.Fatal(err)
	}
	text, err := built.AsYaml()
	if err != nil {
		c.Fatal(err)
	}
	// A namespace is there before what is in it.
	for _, object := range objects(c, text) {
		c.apply(object, metav1.PatchOptions{})
	}
}

func objects(t testing.TB, text []byte) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bufio.NewReader(bytes.NewReader(text)), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); err != nil {
			break
		}
		all = append(all, object)
	}
	if len(all) == 0 {
		t.Fatal("no objects")
	}
	return all
}

// apply an object. A field that the API server does not know is an error.
func (c *cluster) apply(object *unstructured.Unstructured, options metav1.PatchOptions) {
	c.Helper()
	mapping, err := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.Discovery())).
		RESTMapping(object.GroupVersionKind().GroupKind(), object.GroupVersionKind().Version)
	if err != nil {
		c.Fatal(err)
	}
	client, err := dynamic.NewForConfig(rest.CopyConfig(c.admin))
	if err != nil {
		c.Fatal(err)
	}
	var resource dynamic.ResourceInterface = client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		in := object.GetNamespace()
		if in == "" {
			in = namespace
		}
		resource = client.Resource(mapping.Resource).Namespace(in)
	}
	text, err := json.Marshal(object)
	if err != nil {
		c.Fatal(err)
	}
	force := true
	options.FieldManager, options.FieldValidation, options.Force = "test", metav1.FieldValidationStrict, &force
	if _, err := resource.Patch(ctx, object.GetName(), types.ApplyPatchType, text, options); err != nil {
		c.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
	}
}

// member is the driver of a node, by the token that the kubelet would give its pod.
type member struct {
	*cluster
	node, token string
}

func (c *cluster) member(node string) member {
	c.Helper()
	set, err := c.AppsV1().DaemonSets("prezero").Get(ctx, "prezero-dra", get)
	if err != nil {
		c.Fatal(err)
	}
	name := "prezero-" + node
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "prezero", Labels: set.Spec.Template.Labels}, Spec: set.Spec.Template.Spec}
	pod.Spec.NodeName = node
	made := c.run(pod)
	seconds := int64(3600)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: name, UID: made.UID}}}
	answer, err := c.CoreV1().ServiceAccounts("prezero").CreateToken(ctx, pod.Spec.ServiceAccountName, request, strict)
	if err != nil {
		c.Fatal(err)
	}
	return member{c, node, answer.Status.Token}
}

// Kubeconfig of the driver.
func (m member) Kubeconfig(testing.TB) string { return m.kubeconfig("driver-"+m.node, m.token) }

func (m member) client() kubernetes.Interface {
	m.Helper()
	config := rest.CopyConfig(m.admin)
	config.BearerToken = m.token
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		m.Fatal(err)
	}
	return client
}

func TestTheAPIServerTakesEveryExampleAndPlacesItsPod(t *testing.T) {
	c := newCluster(t)
	c.install()
	// The inference server asks for GPUs, and for most of the memory.
	c.nodeOf("a", "examples", v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Gi"), "nvidia.com/gpu": resource.MustParse("2")})
	c.publish("a", "prezero.dev", rig.Leases(t, 256, "0", ""))
	files, err := filepath.Glob(manifests + "/examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range objects(t, text) {
			c.apply(object, metav1.PatchOptions{})
			if object.GetKind() == "Pod" {
				c.bound(object.GetName())
			}
		}
	}
}

// What the driver did is what it may do: each right was used, and nothing was refused.
func TestTheDriverMayDoWhatItDoesAndNothingElse(t *testing.T) {
	s := newSite(t, "64M", "--absent", "1s")
	s.published(64*mib, "")
	claim, _ := s.lease("one", "4Mi")
	s.refuses("two", `{"mode": "0999"}`, "parameters.mode")
	s.until("the claim's status tells of the lease", func() bool {
		found, err := s.ResourceV1().ResourceClaims(namespace).Get(ctx, claim.Name, get)
		return err == nil && len(found.Status.Devices) == 1
	})
	s.label("true")
	s.published(64*mib, "draining")
	s.label("false")
	s.published(64*mib, "")
	if out, err := s.driver.Run("drain"); err != nil {
		t.Fatal(err, out)
	}
	s.published(64*mib, "draining")
	// A mount that has no room: there is no device, and no slice.
	s.withdraws()
	// A slice too many, as of an earlier version of the driver, goes.
	extra := s.publish(rig.Node, "prezero.dev", rig.Leases(t, 4, "0", ""))
	s.until("the slice too many is gone", func() bool {
		_, err := s.ResourceV1().ResourceSlices().Get(ctx, extra.Name, get)
		return apierrors.IsNotFound(err)
	})

	// API servers without streamed lists are asked for one.
	used := append(s.audited(), "list resourceslices", "list nodes")
	role, err := s.RbacV1().ClusterRoles().Get(ctx, "prezero-dra", get)
	if err != nil {
		t.Fatal(err)
	}
	for _, right := range rights(role) {
		if !slices.Contains(used, right) {
			t.Errorf("the role has %q, which the driver never used: %v", right, used)
		}
	}
	if t.Failed() {
		t.Logf("used: %s", strings.Join(used, ", "))
	}
}

// label the site's node.
func (s *site) label(drain string) {
	s.Helper()
	patch := fmt.Sprintf(`{"metadata": {"labels": {"prezero.dev/drain": %q}}}`, drain)
	if _, err := s.CoreV1().Nodes().Patch(ctx, rig.Node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		s.Fatal(err)
	}
}

// rights of a role, but for those that only the API server itself asks about.
func rights(role *rbacv1.ClusterRole) []string {
	var all []string
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				if resource != "resourceclaims/driver" {
					all = append(all, verb+" "+resource)
				}
			}
		}
	}
	sort.Strings(all)
	return all
}

// audited is what the driver did, by the API server's log. What was refused it is an error.
func (s *site) audited() []string {
	s.Helper()
	text, err := os.ReadFile(s.path("audit.log"))
	if err != nil {
		s.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(string(text)) {
		var event struct {
			Verb           string
			RequestURI     string
			ObjectRef      struct{ Resource, Subresource string }
			ResponseStatus struct {
				Code    int
				Message string
			}
		}
		if err := json.Unmarshal([]byte(line), &event); err != nil || event.ObjectRef.Resource == "" {
			continue
		}
		what := event.Verb + " " + event.ObjectRef.Resource
		if event.ObjectRef.Subresource != "" {
			what += "/" + event.ObjectRef.Subresource
		}
		if event.ResponseStatus.Code == 403 || event.ResponseStatus.Code == 401 {
			s.Errorf("%s was refused: %s", what, event.ResponseStatus.Message)
		}
		if !slices.Contains(all, what) {
			all = append(all, what)
		}
	}
	sort.Strings(all)
	return all
}

// The sample of an administrator: what a namespace leases is bounded by its label, and other namespaces are not.
func TestANamespaceLeasesNoMoreThanItsLabelSays(t *testing.T) {
	c := newCluster(t)
	c.install()
	c.kustomize(manifests + "/removal")
	text, err := os.ReadFile(manifests + "/samples/bytes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects(c, text) {
		c.apply(object, metav1.PatchOptions{})
	}
	patch := []byte(`{"metadata": {"labels": {"prezero.dev/lease-bytes": "4Gi"}}}`)
	if _, err := c.CoreV1().Namespaces().Patch(ctx, namespace, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	asked := func(size string) error {
		claim := c.claim(rig.Request("ram", "zero.prezero.dev", size))
		_, err := c.ResourceV1().ResourceClaims(namespace).Create(ctx, claim, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	// The policy holds a moment after it was made.
	c.until("a claim above the bound is refused", func() bool {
		err := asked("5Gi")
		return err != nil && strings.Contains(err.Error(), "a lease of this namespace has at most 4Gi")
	})
	if err := asked("4Gi"); err != nil {
		t.Error(err)
	}
	if err := asked(""); err == nil || !strings.Contains(err.Error(), "give capacity.requests.size") {
		t.Error(err)
	}
	other := c.claim(rig.Request("ram", "zero.prezero.dev", "5Gi"))
	other.Namespace = "prezero"
	if _, err := c.ResourceV1().ResourceClaims("prezero").Create(ctx, other, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Error(err)
	}
}

func TestTheDriverOfANodeMayNotTouchAnother(t *testing.T) {
	c := newCluster(t)
	c.install()
	c.node("a", "a")
	c.node("b", "b")
	driver := c.member("a").client()
	slice := func(node string) *resourceapi.ResourceSlice {
		return &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "of-" + node}, Spec: resourceapi.ResourceSliceSpec{Driver: "prezero.dev",
			NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1}, Devices: rig.Leases(t, 4, "0", "")}}
	}
	// The policy holds a moment after it was made.
	c.until("the policy holds", func() bool {
		_, err := driver.ResourceV1().ResourceSlices().Create(ctx, slice("b"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "node a may not write slices of b")
	})
	if _, err := driver.ResourceV1().ResourceSlices().Create(ctx, slice("a"), strict); err != nil {
		t.Error(err)
	}
	c.publish("b", "prezero.dev", rig.Leases(t, 4, "0", ""))
	for what, refused := range map[string]func() error{
		"delete another's slice": func() error { return driver.ResourceV1().ResourceSlices().Delete(ctx, "b-prezero.dev", gone) },
		"read secrets":           func() error { _, err := driver.CoreV1().Secrets("prezero").List(ctx, list); return err },
		"label its node": func() error {
			_, err := driver.CoreV1().Nodes().Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata": {"labels": {"x": "y"}}}`), metav1.PatchOptions{})
			return err
		},
		"list pods":   func() error { _, err := driver.CoreV1().Pods(namespace).List(ctx, list); return err },
		"list claims": func() error { _, err := driver.ResourceV1().ResourceClaims(namespace).List(ctx, list); return err },
		"make a pod": func() error {
			_, err := driver.CoreV1().Pods(namespace).Create(ctx, pod("p", "a", "c"), strict)
			return err
		},
		"delete a claim": func() error { return driver.ResourceV1().ResourceClaims(namespace).Delete(ctx, "c", gone) },
		"change a node": func() error {
			_, err := driver.CoreV1().Nodes().Patch(ctx, "a", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
			return err
		},
	} {
		if err := refused(); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("it may %s: %v", what, err)
		}
	}
	// A claim that is allocated on another node, and one of another driver.
	for _, c2 := range []struct{ node, driver string }{{"b", "prezero.dev"}, {"a", "gpu.example.com"}} {
		if err := c.status(driver, c2.node, c2.driver); err == nil {
			t.Errorf("it wrote the status of a claim of %s on %s", c2.driver, c2.node)
		}
	}
	if err := c.status(driver, "a", "prezero.dev"); err != nil {
		t.Errorf("it may not write the status of its own claim: %v", err)
	}
}

// status of a claim, allocated by a driver on a node, is written by somebody.
func (c *cluster) status(client kubernetes.Interface, node, driver string) error {
	c.Helper()
	claim := c.ask(c.claim(rig.Request("r", "zero.prezero.dev", "")))
	claim.Finalizers = []string{resourceapi.Finalizer}
	claim, err := c.ResourceV1().ResourceClaims(namespace).Update(ctx, claim, metav1.UpdateOptions{})
	if err != nil {
		c.Fatal(err)
	}
	claim.Status.Allocation = &resourceapi.AllocationResult{
		NodeSelector: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchFields: []v1.NodeSelectorRequirement{
			{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{node}}}}}},
		Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
			{Request: "r", Driver: driver, Pool: node, Device: "node0-2mi"}}}}
	if claim, err = c.ResourceV1().ResourceClaims(namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
	patch := fmt.Sprintf(`{"status": {"devices": [{"driver": %q, "pool": %q, "device": "node0-2mi"}]}}`, driver, node)
	_, err = client.ResourceV1().ResourceClaims(namespace).Patch(ctx, claim.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	return err
}
