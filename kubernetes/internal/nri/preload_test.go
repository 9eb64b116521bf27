package nri_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"prezero.dev/kubernetes/internal/nri"
	"prezero.dev/kubernetes/internal/rig"
)

func TestTheLibraryIsPreloadedWhereTheNamespaceAsksForIt(t *testing.T) {
	file := "/var/lib/kubelet/plugins/prezero.dev/library/01/libprezero.so"
	preload := &nri.Preload{File: func() string { return file }, Wanted: func(namespace string) bool { return namespace == "asks" }}
	plugin := &nri.Plugin{Preload: preload}
	runtime, _ := serve(t, plugin)
	pod := func(namespace string, annotations map[string]string) *api.PodSandbox {
		return &api.PodSandbox{Namespace: namespace, Annotations: annotations}
	}
	plain := func(id string) *api.Container { return rig.Container(id, 0) }
	own := plain("own")
	own.Env = []string{"PATH=/bin", "LD_PRELOAD=/usr/lib/libjemalloc.so.2"}
	taken := plain("taken")
	taken.Mounts = []*api.Mount{{Destination: nri.Library}}
	// In a volume that is read-only the runtime could not make the folder.
	volume := func(id string, at ...string) *api.Container {
		container := plain(id)
		for _, destination := range at {
			container.Mounts = append(container.Mounts, &api.Mount{Destination: destination, Options: []string{"rbind", "ro"}})
		}
		return container
	}
	for _, c := range []struct {
		pod       *api.PodSandbox
		container *api.Container
		at        string
	}{
		{pod("asks", nil), plain("one"), nri.Library},
		{pod("asks", map[string]string{nri.PreloadLabel: "true"}), plain("two"), nri.Library},
		{pod("asks", map[string]string{nri.PreloadLabel: "false"}), plain("left-out"), ""},
		{pod("other", map[string]string{nri.PreloadLabel: "true"}), plain("other"), ""},
		{pod("asks", nil), own, ""},
		{pod("asks", nil), taken, ""},
		{pod("asks", nil), volume("run", "/run"), "/.prezero/library"},
		{pod("asks", nil), volume("var-run", "/var/run/"), "/.prezero/library"},
		{pod("asks", nil), volume("run-prezero", "/run/prezero"), "/.prezero/library"},
		{pod("asks", nil), volume("beside", "/run/prezero/leases/x", "/running", "/", "/var"), nri.Library},
		{pod("asks", nil), volume("both", "/run", "/.prezero"), ""},
	} {
		adjust := runtime.CreateIn(c.pod, c.container)
		is := len(adjust.GetMounts()) == 1 && len(adjust.GetEnv()) == 1
		if is != (c.at != "") || !is && len(adjust.GetMounts())+len(adjust.GetEnv()) > 0 {
			t.Errorf("%s: %v", c.container.Id, adjust)
			continue
		}
		if !is {
			continue
		}
		mount, env := adjust.GetMounts()[0], adjust.GetEnv()[0]
		if mount.Source != "/var/lib/kubelet/plugins/prezero.dev/library/01" || mount.Destination != c.at || len(mount.Options) != 4 ||
			env.Key != "LD_PRELOAD" || env.Value != c.at+"/libprezero.so" {
			t.Errorf("%s: %v %v", c.container.Id, mount, env)
		}
	}
	// A library that is gone would keep containers from starting.
	file = ""
	if adjust := runtime.CreateIn(pod("asks", nil), plain("without")); len(adjust.GetMounts()) > 0 {
		t.Error(adjust)
	}
	// Two of those above have a place for it, and do not have it.
	if all, fresh, _ := plugin.Lack(); all != 2 || len(fresh) != 2 {
		t.Error(all, fresh)
	}
}

// What started while no driver was there, or while its namespace was not known, is counted, and named once.
func TestContainersWithoutTheLibraryAreCountedAndNamed(t *testing.T) {
	var known atomic.Bool
	preload := &nri.Preload{File: func() string { return "/x/libprezero.so" }, Wanted: func(namespace string) bool { return known.Load() && namespace == "asks" }}
	runtime := rig.NewRuntime(t)
	container := func(id, namespace string, env ...string) *api.Container {
		pod := &api.PodSandbox{Id: "pod-" + id, Uid: "uid-" + id, Name: id, Namespace: namespace}
		one := rig.Container(id, 0)
		one.PodSandboxId, one.Env = pod.Id, env
		runtime.Pods, runtime.Containers = append(runtime.Pods, pod), append(runtime.Containers, one)
		return one
	}
	before := container("before", "asks")
	container("has", "asks", "LD_PRELOAD=/run/prezero/library/libprezero.so")
	container("other", "other")
	stopped := container("stopped", "asks")
	stopped.State = api.ContainerState_CONTAINER_STOPPED
	plugin := &nri.Plugin{Preload: preload, Yield: func(context.Context, nri.Promised) error { return nil }}
	if _, _, heard := plugin.Lack(); heard {
		t.Error("no runtime tells of containers")
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go plugin.Run(ctx, runtime.Socket)
	runtime.Plugin(1)
	early := rig.Container("early", 0)
	runtime.CreateIn(&api.PodSandbox{Namespace: "asks", Name: "early", Uid: "uid-early"}, early)
	lack := func(all int, fresh ...string) {
		t.Helper()
		count, told, heard := plugin.Lack()
		var names []string
		for _, one := range told {
			names = append(names, one.Namespace+"/"+one.Name+" "+one.UID+" "+one.Container)
		}
		slices.Sort(names)
		if count != all || !slices.Equal(names, fresh) || !heard {
			t.Errorf("%d %q %v", count, names, heard)
		}
	}
	lack(0)
	known.Store(true)
	lack(2, "asks/before uid-before before", "asks/early uid-early early")
	lack(2)
	runtime.Remove(before)
	lack(1)
}
