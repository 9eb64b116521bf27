package nri_test

import (
	"testing"

	"github.com/containerd/nri/pkg/api"

	"prezero.dev/kubernetes/internal/nri"
	"prezero.dev/kubernetes/internal/rig"
)

func TestTheLibraryIsPreloadedWhereTheNamespaceAsksForIt(t *testing.T) {
	file := "/var/lib/kubelet/plugins/prezero.dev/library/01/libprezero.so"
	preload := &nri.Preload{File: func() string { return file }, Wanted: func(namespace string) bool { return namespace == "asks" }}
	runtime, _ := serve(t, &nri.Plugin{Preload: preload})
	pod := func(namespace string, annotations map[string]string) *api.PodSandbox {
		return &api.PodSandbox{Namespace: namespace, Annotations: annotations}
	}
	plain := func(id string) *api.Container { return rig.Container(id, 0) }
	own := plain("own")
	own.Env = []string{"PATH=/bin", "LD_PRELOAD=/usr/lib/libjemalloc.so.2"}
	taken := plain("taken")
	taken.Mounts = []*api.Mount{{Destination: nri.Library}}
	for _, c := range []struct {
		pod       *api.PodSandbox
		container *api.Container
		is        bool
	}{
		{pod("asks", nil), plain("one"), true},
		{pod("asks", map[string]string{nri.PreloadLabel: "true"}), plain("two"), true},
		{pod("asks", map[string]string{nri.PreloadLabel: "false"}), plain("left-out"), false},
		{pod("other", map[string]string{nri.PreloadLabel: "true"}), plain("other"), false},
		{pod("asks", nil), own, false},
		{pod("asks", nil), taken, false},
	} {
		adjust := runtime.CreateIn(c.pod, c.container)
		is := len(adjust.GetMounts()) == 1 && len(adjust.GetEnv()) == 1
		if is != c.is || !c.is && len(adjust.GetMounts())+len(adjust.GetEnv()) > 0 {
			t.Errorf("%s: %v", c.container.Id, adjust)
			continue
		}
		if !is {
			continue
		}
		mount, env := adjust.GetMounts()[0], adjust.GetEnv()[0]
		if mount.Source != "/var/lib/kubelet/plugins/prezero.dev/library/01" || mount.Destination != nri.Library || len(mount.Options) != 4 ||
			env.Key != "LD_PRELOAD" || env.Value != nri.Library+"/libprezero.so" {
			t.Errorf("%s: %v %v", c.container.Id, mount, env)
		}
	}
	// A library that is gone would keep containers from starting.
	file = ""
	if adjust := runtime.CreateIn(pod("asks", nil), plain("without")); len(adjust.GetMounts()) > 0 {
		t.Error(adjust)
	}
}
