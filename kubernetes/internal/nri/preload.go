package nri

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"
)

const (
	// Library is where containers find the folder of the library, and elsewhere where a volume is mounted above that: in
	// one that is read-only the runtime cannot make the folder.
	Library   = "/run/prezero/library"
	elsewhere = "/.prezero/library"
	// PreloadLabel of a namespace has the library in its pods; the annotation of that name, "false", leaves a pod out.
	PreloadLabel = "prezero.dev/preload"
)

// Preload has the library in containers of namespaces that ask for it.
type Preload struct {
	// File is the library on the host; "": it is not there now.
	File func() string
	// Wanted tells whether a namespace has the label.
	Wanted func(namespace string) bool
}

// edit a container before it starts, so that it has the library. One that preloads something of its own is left alone: which of two allocators is
// first is its maker's choice. Programs with another libc load the library and do not use it.
func (p *Preload) edit(container *api.Container, adjustment *api.ContainerAdjustment) {
	file, at := p.File(), Library
	if under(container, at) {
		at = elsewhere
	}
	if file == "" || under(container, at) {
		return
	}
	// The folder, which has nothing else: a mount of a file would make its place in the image's root.
	adjustment.AddMount(&api.Mount{Source: filepath.Dir(file), Destination: at, Type: "bind", Options: []string{"bind", "ro", "nosuid", "nodev"}})
	adjustment.AddEnv("LD_PRELOAD", filepath.Join(at, filepath.Base(file)))
}

// lacks tells whether a container has no library and would have one in a namespace that asks.
func (p *Preload) lacks(pod *api.PodSandbox, container *api.Container) bool {
	return p != nil && pod.GetAnnotations()[PreloadLabel] != "false" &&
		!slices.ContainsFunc(container.GetEnv(), func(variable string) bool { return strings.HasPrefix(variable, "LD_PRELOAD=") }) &&
		!slices.ContainsFunc(container.GetMounts(), func(mount *api.Mount) bool { return mount.Destination == Library })
}

// under tells whether a volume of the container is mounted above a path.
func under(container *api.Container, path string) bool {
	return slices.ContainsFunc(container.GetMounts(), func(mount *api.Mount) bool {
		// Images have a link there.
		at := strings.Replace(filepath.Clean(mount.Destination), "/var/run", "/run", 1)
		return at != "/" && strings.HasPrefix(path+"/", at+"/")
	})
}
