// Package nri hears of containers before they start, from a runtime that has NRI (containerd 2, CRI-O).
//
// Three things are done there. Containers of namespaces that ask for it have the library preloaded. The kubelet adds a lease to its container's limit for huge pages where the node's
// allocatable resources have it (`--node-allocatable`), and with that limit the container could take as much again
// from the pool: the limit is set back. And the kubelet promises pages of the pool by limits, without knowing of
// stock: what was promised and not taken is told, so that stock yields to it before the container starts.
//
// A container is never refused here: where nothing can be done it starts as it would without this plugin.
package nri

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"prezero.dev/kubernetes/internal/broker"
	"prezero.dev/kubernetes/internal/delivery"
)

const (
	// Longest that a container waits for stock to yield: the runtime waits for 2 seconds by default.
	longest = time.Second
	// How often a runtime that is not there is looked for.
	again = 10 * time.Second
)

// sizes of pages as runtimes name them, and as the kernel names their files.
var sizes = map[string]broker.Page{"2MB": broker.Huge, "1GB": broker.Giant}

// Promised is bytes by the size of page.
type Promised map[broker.Page]uint64

// Plugin is told of containers.
type Plugin struct {
	// Leased is what the claim has of pools.
	Leased func(types.UID) Promised
	// Raised: the kubelet adds leases to limits.
	Raised bool
	// Yield has stock give way to what was promised. Calls come one after the other, the latest promise last.
	Yield func(context.Context, Promised) error
	// Cgroups is where the kernel tells what a container has; a container that is not found there has nothing.
	Cgroups string
	// Preload has the library in containers; nil: in none.
	Preload *Preload

	// telling has one promise computed and told at a time. The event of a container and a look at all of them would
	// otherwise tell theirs in the other order.
	telling    turn
	mutex      sync.Mutex
	containers map[string]container
	// lacking are containers without the library, by their names, whether their namespaces ask for it or not.
	lacking map[string]*Lacking
	heard   bool
}

// Lacking is a pod with a container that runs without the library.
type Lacking struct {
	Namespace, Name, UID, Container string
	told                            bool
}

// turn is a mutex whose waiter gives up with its context.
type turn struct {
	once sync.Once
	free chan struct{}
}

func (t *turn) take(ctx context.Context) error {
	t.once.Do(func() { t.free = make(chan struct{}, 1) })
	select {
	case t.free <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *turn) leave() { <-t.free }

// container has limits of its own, beside its leases.
type container struct {
	limits Promised
	cgroup string
}

// Run serves the runtime at this socket until the context ends.
func (p *Plugin) Run(ctx context.Context, socket string) {
	log, missed := klog.FromContext(ctx), false
	for ctx.Err() == nil {
		plugin, err := stub.New(p, stub.WithSocketPath(socket), stub.WithPluginName("prezero"), stub.WithPluginIdx("50"))
		if err == nil {
			began := time.Now()
			if err = plugin.Run(ctx); time.Since(began) > again {
				missed = false
			}
			p.mutex.Lock()
			p.heard = false
			p.mutex.Unlock()
		}
		if !missed && ctx.Err() == nil {
			log.Info("No NRI: "+p.without()+"; enable NRI in the runtime", "socket", socket, "why", err)
			missed = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
}

// without is what does not happen without a runtime that has NRI.
func (p *Plugin) without() string {
	lacks := "limits for huge pages are not set back, and stock does not yield"
	if p.Preload != nil {
		lacks += ", and containers of labelled namespaces start without the library"
	}
	return lacks
}

// Promised is what containers may still take by their limits.
func (p *Plugin) Promised() Promised {
	p.mutex.Lock()
	containers := maps.Clone(p.containers)
	p.mutex.Unlock()
	sum := Promised{}
	for _, container := range containers {
		for page, limit := range container.limits {
			sum[page] += limit - min(limit, p.taken(container.cgroup, page))
		}
	}
	return sum
}

// Tell has stock give way to what is promised now.
func (p *Plugin) Tell(ctx context.Context) error {
	if err := p.telling.take(ctx); err != nil {
		return err
	}
	defer p.telling.leave()
	return p.Yield(ctx, p.Promised())
}

// Synchronize is told of the containers that are there.
func (p *Plugin) Synchronize(ctx context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	p.mutex.Lock()
	p.containers, p.lacking, p.heard = map[string]container{}, nil, true
	p.mutex.Unlock()
	of := map[string]*api.PodSandbox{}
	for _, pod := range pods {
		of[pod.Id] = pod
	}
	for _, container := range containers {
		if container.State != api.ContainerState_CONTAINER_STOPPED {
			p.add(container, limits(container))
			// It started while no driver was there, or none that knew of its namespace.
			if pod := of[container.PodSandboxId]; pod != nil && p.Preload.lacks(pod, container) {
				p.lacks(pod, container)
			}
		}
	}
	p.yields(ctx)
	return nil, nil
}

// CreateContainer comes before a container starts.
func (p *Plugin) CreateContainer(ctx context.Context, pod *api.PodSandbox, container *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	adjustment := &api.ContainerAdjustment{}
	if p.Preload.lacks(pod, container) {
		if p.Preload.Wanted(pod.GetNamespace()) {
			p.Preload.edit(container, adjustment)
		}
		if len(adjustment.Mounts) == 0 {
			p.lacks(pod, container)
		}
	}
	own := limits(container)
	if p.Raised {
		for page, bytes := range p.leased(container) {
			if own[page] == 0 {
				continue
			}
			own[page] -= min(own[page], bytes)
			for name, size := range sizes {
				if size == page {
					adjustment.AddLinuxHugepageLimit(name, own[page])
				}
			}
		}
	}
	if p.add(container, own) {
		p.yields(ctx)
	}
	return adjustment, nil, nil
}

// StopContainer comes when a container ends.
func (p *Plugin) StopContainer(_ context.Context, _ *api.PodSandbox, container *api.Container) ([]*api.ContainerUpdate, error) {
	p.forget(container)
	return nil, nil
}

// RemoveContainer comes after its end.
func (p *Plugin) RemoveContainer(_ context.Context, _ *api.PodSandbox, container *api.Container) error {
	p.forget(container)
	return nil
}

func (p *Plugin) forget(container *api.Container) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	delete(p.containers, container.Id)
	delete(p.lacking, container.Id)
}

// lacks takes down that a container starts without the library.
func (p *Plugin) lacks(pod *api.PodSandbox, container *api.Container) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.lacking == nil {
		p.lacking = map[string]*Lacking{}
	}
	p.lacking[container.Id] = &Lacking{Namespace: pod.Namespace, Name: pod.Name, UID: pod.Uid, Container: container.Name}
}

// Lack tells how many containers of namespaces that ask for the library run without it, which of them were not told before,
// and whether the runtime tells of containers at all.
func (p *Plugin) Lack() (all int, fresh []Lacking, heard bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, one := range p.lacking {
		if p.Preload.Wanted(one.Namespace) {
			all++
			if !one.told {
				one.told = true
				fresh = append(fresh, *one)
			}
		}
	}
	return all, fresh, p.heard
}

// add a container; false: it was promised no page.
func (p *Plugin) add(of *api.Container, limits Promised) bool {
	maps.DeleteFunc(limits, func(_ broker.Page, limit uint64) bool { return limit == 0 })
	if len(limits) == 0 {
		return false
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.containers == nil {
		p.containers = map[string]container{}
	}
	p.containers[of.Id] = container{limits, of.GetLinux().GetCgroupsPath()}
	return true
}

func (p *Plugin) yields(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	if err := p.Tell(ctx); err != nil {
		klog.FromContext(ctx).Info("Stock does not yield to the limits of containers", "why", err)
	}
}

// leased is what a container has of pools by its claims: their leases are mounted in it, or will be.
func (p *Plugin) leased(container *api.Container) Promised {
	claims := map[types.UID]bool{}
	for _, mount := range container.Mounts {
		if path, ours := strings.CutPrefix(mount.Destination, delivery.Folder+"/"); ours {
			uid, _, _ := strings.Cut(path, "/")
			claims[types.UID(uid)] = true
		}
	}
	for _, device := range container.CDIDevices {
		if uid := delivery.Owner(device.Name); uid != "" {
			claims[uid] = true
		}
	}
	sum := Promised{}
	for uid := range claims {
		for page, bytes := range p.Leased(uid) {
			sum[page] += bytes
		}
	}
	return sum
}

func limits(container *api.Container) Promised {
	limits := Promised{}
	for _, limit := range container.GetLinux().GetResources().GetHugepageLimits() {
		if page, known := sizes[limit.PageSize]; known {
			limits[page] = limit.Limit
		}
	}
	return limits
}

// taken is what a container has of its limit: what was promised to its mappings, or is in use.
func (p *Plugin) taken(cgroup string, page broker.Page) uint64 {
	if cgroup == "" {
		return 0
	}
	for name, size := range sizes {
		if size == page {
			dir := filepath.Join(p.Cgroups, Path(cgroup), "hugetlb."+name)
			return max(number(dir+".rsvd.current"), number(dir+".current"))
		}
	}
	return 0
}

func number(file string) uint64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	number, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return number
}

// Path of a container's cgroup below the root: runtimes name it as a path, or as systemd does,
// `kubepods-pod1.slice:cri-containerd:ID`.
func Path(cgroup string) string {
	parts := strings.Split(cgroup, ":")
	if len(parts) != 3 {
		return cgroup
	}
	var path, slice string
	for _, part := range strings.Split(strings.TrimSuffix(parts[0], ".slice"), "-") {
		slice += part
		path = filepath.Join(path, slice+".slice")
		slice += "-"
	}
	return filepath.Join(path, parts[1]+"-"+parts[2]+".scope")
}
