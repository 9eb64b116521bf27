package nri

import (
	"path/filepath"
	"strings"

	"github.com/containerd/nri/pkg/api"
)

const (
	// Library is where containers find the folder of the library.
	Library = "/run/prezero/library"
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

// edit a container before it starts. One that preloads something of its own is left alone: which of two allocators is
// first is its maker's choice. Programs with another libc load the library and do not use it.
func (p *Preload) edit(pod *api.PodSandbox, container *api.Container, adjustment *api.ContainerAdjustment) {
	if p == nil || !p.Wanted(pod.GetNamespace()) || pod.GetAnnotations()[PreloadLabel] == "false" {
		return
	}
	for _, variable := range container.GetEnv() {
		if strings.HasPrefix(variable, "LD_PRELOAD=") {
			return
		}
	}
	for _, mount := range container.GetMounts() {
		if mount.Destination == Library {
			return
		}
	}
	file := p.File()
	if file == "" {
		return
	}
	// The folder, which has nothing else: a mount of a file would make its place in the image's root.
	adjustment.AddMount(&api.Mount{Source: filepath.Dir(file), Destination: Library, Type: "bind", Options: []string{"bind", "ro", "nosuid", "nodev"}})
	adjustment.AddEnv("LD_PRELOAD", filepath.Join(Library, filepath.Base(file)))
}
