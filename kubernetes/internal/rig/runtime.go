package rig

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
)

// Runtime is the part of a container runtime that speaks NRI.
type Runtime struct {
	t      testing.TB
	nri    *adaptation.Adaptation
	Socket string
	mutex  sync.Mutex
	// Containers are those that a plugin is told of when it comes, and Pods theirs.
	Containers []*api.Container
	Pods       []*api.PodSandbox
	plugins    int
}

// NewRuntime waits for plugins at its socket until the test ends.
func NewRuntime(t testing.TB, containers ...*api.Container) *Runtime {
	t.Helper()
	// Short: the path of a socket is at most 107 bytes.
	dir, err := os.MkdirTemp("", "nri")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	r := &Runtime{t: t, Socket: filepath.Join(dir, "nri.sock"), Containers: containers}
	synchronize := func(ctx context.Context, tell adaptation.SyncCB) error {
		_, err := tell(ctx, r.Pods, r.Containers)
		r.mutex.Lock()
		r.plugins++
		r.mutex.Unlock()
		return err
	}
	update := func(context.Context, []*adaptation.ContainerUpdate) ([]*adaptation.ContainerUpdate, error) {
		return nil, nil
	}
	r.nri, err = adaptation.New("rig", "1", synchronize, update, adaptation.WithSocketPath(r.Socket),
		adaptation.WithPluginPath(filepath.Join(dir, "plugins")), adaptation.WithPluginConfigPath(filepath.Join(dir, "conf")))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.nri.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.nri.Stop)
	// It synchronized with the plugins that it starts itself: none.
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.plugins = 0
	return r
}

// Plugins that came until now.
func (r *Runtime) Plugins() int {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.plugins
}

// Plugin waits until so many plugins came.
func (r *Runtime) Plugin(number int) {
	r.t.Helper()
	Until(r.t, "a plugin comes to the runtime", func() bool {
		r.mutex.Lock()
		defer r.mutex.Unlock()
		return r.plugins >= number
	})
	// It is registered when its synchronization has ended.
	r.nri.BlockPluginSync().Unblock()
}

// Create a container; what plugins change of it comes back.
func (r *Runtime) Create(container *api.Container) *api.ContainerAdjustment {
	r.t.Helper()
	return r.CreateIn(&api.PodSandbox{}, container)
}

// CreateIn creates it in a pod, which this gives an ID.
func (r *Runtime) CreateIn(pod *api.PodSandbox, container *api.Container) *api.ContainerAdjustment {
	r.t.Helper()
	pod.Id = "pod-" + container.Id
	container.PodSandboxId = pod.Id
	answer, err := r.nri.CreateContainer(context.Background(), &api.CreateContainerRequest{Pod: pod, Container: container})
	if err != nil {
		r.t.Fatal(err)
	}
	return answer.Adjust
}

// Remove a container.
func (r *Runtime) Remove(container *api.Container) {
	r.t.Helper()
	err := r.nri.RemoveContainer(context.Background(), &api.RemoveContainerRequest{Pod: &api.PodSandbox{Id: container.PodSandboxId}, Container: container})
	if err != nil {
		r.t.Fatal(err)
	}
}

// Container whose limit for pages of 2 MiB is so many bytes, as the kubelet has it made.
func Container(id string, limit uint64) *api.Container {
	return &api.Container{Id: id, Name: id, State: api.ContainerState_CONTAINER_CREATED, Linux: &api.LinuxContainer{
		CgroupsPath: "/kubepods/" + id,
		Resources:   &api.LinuxResources{HugepageLimits: []*api.HugepageLimit{{PageSize: "2MB", Limit: limit}, {PageSize: "1GB", Limit: 0}}}}}
}
