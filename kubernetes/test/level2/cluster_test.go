// Package level2 runs a kube-apiserver, a kube-scheduler and an etcd, and the driver beside them. The processes are
// real, and are this test's own program; nodes are objects, and the test plays their kubelets.
package level2

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/resourceclaim"
	"k8s.io/utils/ptr"

	"prezero.dev/kubernetes/internal/rig"
)

const namespace = "default"

var (
	ctx    = context.Background()
	get    = metav1.GetOptions{}
	list   = metav1.ListOptions{}
	strict = metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
	gone   = metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}
)

// cluster without a node yet.
type cluster struct {
	testing.TB
	dir     string
	address string
	admin   *rest.Config
	kubernetes.Interface
	api, scheduler *process
	made           int
	// features that the kubelets of new nodes declare.
	features []string
}

// newCluster starts one; the flags are for API server and scheduler.
func newCluster(t testing.TB, flags ...string) *cluster {
	t.Helper()
	addresses := free(t, 3)
	c := &cluster{TB: t, dir: t.TempDir(), address: addresses[2]}
	start(t, "etcd", filepath.Join(c.dir, "etcd"), addresses[0], addresses[1])
	key(t, c.path("key"))
	write(t, c.path("tokens"), "admin,admin,1,system:masters\nscheduler,system:kube-scheduler,2\n")
	write(t, c.path("audit.yaml"), "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n"+
		"- {level: Metadata, users: [\""+account+"\"]}\n- {level: None}\n")
	_, port, _ := strings.Cut(c.address, ":")
	c.api = start(t, "kube-apiserver", append([]string{"--etcd-servers=http://" + addresses[0], "--token-auth-file=" + c.path("tokens"),
		"--service-account-key-file=" + c.path("key"), "--service-account-signing-key-file=" + c.path("key"),
		"--service-account-issuer=https://kubernetes.default.svc", "--cert-dir=" + c.path("certificates"), "--authorization-mode=RBAC",
		"--bind-address=127.0.0.1", "--secure-port=" + port, "--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none",
		// No controller looks after nodes here, and takes the taints of new ones away.
		"--disable-admission-plugins=TaintNodesByCondition",
		// The manifests mount a file system for the host.
		"--allow-privileged=true",
		"--audit-policy-file=" + c.path("audit.yaml"), "--audit-log-path=" + c.path("audit.log"),
		"--max-requests-inflight=2000", "--max-mutating-requests-inflight=1000"}, flags...)...)
	c.admin = &rest.Config{Host: "https://" + c.address, BearerToken: "admin", TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: -1}
	c.admin.ContentType = "application/vnd.kubernetes.protobuf"
	var err error
	if c.Interface, err = kubernetes.NewForConfig(c.admin); err != nil {
		t.Fatal(err)
	}
	c.answers()
	write(t, c.path("scheduler.yaml"), "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"+
		"leaderElection: {leaderElect: false}\nclientConnection: {kubeconfig: "+c.kubeconfig("scheduler", "scheduler")+", qps: 5000, burst: 5000}\n")
	c.scheduler = start(t, "kube-scheduler", append([]string{"--config=" + c.path("scheduler.yaml"), "--secure-port=0"}, flags...)...)
	c.controller()
	_, err = c.CoreV1().ServiceAccounts(namespace).Create(ctx, &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, strict)
	if err != nil {
		t.Fatal(err)
	}
	for _, class := range []string{"zero.prezero.dev", "nic.example", "gpu.example.com"} {
		driver := strings.TrimPrefix(class, "zero.")
		_, err := c.ResourceV1().DeviceClasses().Create(ctx, &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: class},
			Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
				Expression: fmt.Sprintf("device.driver == %q", driver)}}}}}, strict)
		if err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *cluster) path(name string) string { return filepath.Join(c.dir, name) }

// kubeconfig for the bearer of a token.
func (c *cluster) kubeconfig(name, token string) string {
	file := c.path(name + ".kubeconfig")
	write(c, file, kubeconfig(c.address, token))
	return file
}

// kubeconfig of an API server at this address.
func kubeconfig(address, token string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}]\n"+
		"users: [{name: u, user: {token: %q}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\ncurrent-context: c\n", "https://"+address, token)
}

// answers waits until the API server does, and has what it makes at its start.
func (c *cluster) answers() {
	c.Helper()
	rig.Until(c, "the API server is ready", func() bool {
		if c.api.ProcessState != nil {
			c.Fatal("the API server ended")
		}
		text, err := c.CoreV1().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err == nil && string(text) == "ok"
	})
	rig.Until(c, "the namespace", func() bool { _, err := c.CoreV1().Namespaces().Get(ctx, namespace, get); return err == nil })
}

// controller makes claims of templates, and gives back what pods had that are gone.
func (c *cluster) controller() {
	ctx, stop := context.WithCancel(ctx)
	c.Cleanup(stop)
	factory := informers.NewSharedInformerFactory(c, 0)
	controller, err := resourceclaim.NewController(klog.Background(), c, factory.Core().V1().Pods(), factory.Scheduling().V1beta1().PodGroups(),
		factory.Resource().V1().ResourceClaims(), factory.Resource().V1().ResourceClaimTemplates())
	if err != nil {
		c.Fatal(err)
	}
	factory.Start(ctx.Done())
	go controller.Run(ctx, 4)
}

// node that runs whatever comes; its pods choose it by the group.
func (c *cluster) node(name, group string) { c.nodeOf(name, group, v1.ResourceList{}) }

// nodeOf has more, or more of it, than other nodes.
func (c *cluster) nodeOf(name, group string, more v1.ResourceList) {
	c.Helper()
	capacity := v1.ResourceList{v1.ResourcePods: resource.MustParse("1000"), v1.ResourceCPU: resource.MustParse("1000"), v1.ResourceMemory: resource.MustParse("6Gi")}
	maps.Copy(capacity, more)
	_, err := c.CoreV1().Nodes().Create(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"group": group}},
		Status: v1.NodeStatus{Capacity: capacity, Allocatable: capacity, DeclaredFeatures: c.features, Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}}}, strict)
	if err != nil {
		c.Fatal(err)
	}
}

// publish a driver's devices of a node.
func (c *cluster) publish(node, driver string, devices []resourceapi.Device) *resourceapi.ResourceSlice {
	c.Helper()
	made := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-" + driver},
		Spec: resourceapi.ResourceSliceSpec{Driver: driver, NodeName: &node, Devices: devices,
			Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1}}}
	var slice *resourceapi.ResourceSlice
	c.until("the API server knows node "+node, func() bool {
		var err error
		slice, err = c.ResourceV1().ResourceSlices().Create(ctx, made, strict)
		if err != nil && !apierrors.IsForbidden(err) {
			c.Fatal(err)
		}
		return err == nil
	})
	return slice
}

// claim with these requests, as an object that is not made yet.
func (c *cluster) claim(requests ...resourceapi.DeviceRequest) *resourceapi.ResourceClaim {
	c.made++
	return &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("claim-", c.made), Namespace: namespace},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: requests}}}
}

// ask makes a claim.
func (c *cluster) ask(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	c.Helper()
	made, err := c.ResourceV1().ResourceClaims(namespace).Create(ctx, claim, strict)
	if err != nil {
		c.Fatal(err)
	}
	return made
}

// pod with a claim, for the nodes of a group.
func pod(name, group, claim string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: v1.PodSpec{
		NodeSelector:                 map[string]string{"group": group},
		AutomountServiceAccountToken: ptr.To(false),
		ResourceClaims:               []v1.PodResourceClaim{{Name: "ram", ResourceClaimName: &claim}},
		Containers: []v1.Container{{Name: "c", Image: "none", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1m")}, Claims: []v1.ResourceClaim{{Name: "ram"}}}}}}}
}

func (c *cluster) run(pod *v1.Pod) *v1.Pod {
	c.Helper()
	made, err := c.CoreV1().Pods(pod.Namespace).Create(ctx, pod, strict)
	if err != nil {
		c.Fatal(err)
	}
	return made
}

// bound waits until a pod has a node.
func (c *cluster) bound(name string) string {
	c.Helper()
	var node string
	c.until("pod "+name+" has a node", func() bool {
		pod, err := c.CoreV1().Pods(namespace).Get(ctx, name, get)
		if err == nil {
			node = pod.Spec.NodeName
		}
		return node != ""
	})
	return node
}

// unschedulable waits until the scheduler says that a pod has no node, and why.
func (c *cluster) unschedulable(name string) string {
	c.Helper()
	var why string
	c.until("pod "+name+" has no node", func() bool {
		pod, err := c.CoreV1().Pods(namespace).Get(ctx, name, get)
		if err != nil {
			return false
		}
		if pod.Spec.NodeName != "" {
			c.Fatalf("pod %s is on %s", name, pod.Spec.NodeName)
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == v1.PodScheduled && condition.Reason == v1.PodReasonUnschedulable {
				why = condition.Message
			}
		}
		return why != ""
	})
	return why
}

// results of a claim's allocation.
func (c *cluster) results(claim string) []resourceapi.DeviceRequestAllocationResult {
	c.Helper()
	found, err := c.ResourceV1().ResourceClaims(namespace).Get(ctx, claim, get)
	if err != nil || found.Status.Allocation == nil {
		c.Fatalf("claim %s: %v, %+v", claim, err, found.Status)
	}
	return found.Status.Allocation.Devices.Results
}

// end deletes a pod and its claim, as if its kubelet had stopped it.
func (c *cluster) end(pod, claim string) {
	c.Helper()
	if err := c.CoreV1().Pods(namespace).Delete(ctx, pod, gone); err != nil {
		c.Fatal(err)
	}
	if err := c.ResourceV1().ResourceClaims(namespace).Delete(ctx, claim, gone); err != nil {
		c.Fatal(err)
	}
	c.until("claim "+claim+" is gone", func() bool {
		_, err := c.ResourceV1().ResourceClaims(namespace).Get(ctx, claim, get)
		return apierrors.IsNotFound(err)
	})
}

// until something is so, asking the API server less often than the rig asks its own.
func (c *cluster) until(what string, isSo func() bool) {
	c.Helper()
	rig.Until(c, what, func() bool {
		if isSo() {
			return true
		}
		time.Sleep(20 * time.Millisecond)
		return false
	})
}
