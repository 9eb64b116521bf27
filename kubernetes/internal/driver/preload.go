package driver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"prezero.dev/kubernetes/internal/nri"
)

const (
	// libraries below the plugin's directory: a folder for each that was installed. Containers that run keep theirs.
	libraries   = "library"
	libraryName = "libprezero.so"
)

// preload copies the library to the host, and hears which namespaces ask for it. nil: no library was given.
func (d *Driver) preload(ctx context.Context) (*nri.Preload, error) {
	if d.Library == "" {
		return nil, nil
	}
	file, err := install(d.Library, filepath.Join(d.Data, libraries))
	if err != nil {
		return nil, fmt.Errorf("--preload: %w", err)
	}
	asking := &namespaces{}
	go asking.watch(ctx, d)
	there := func() string {
		if exists(file) {
			return file
		}
		return ""
	}
	return &nri.Preload{File: there, Wanted: asking.has}, nil
}

// install a library in a folder that its content names. A library that is mapped is never written to.
func install(library, below string) (string, error) {
	text, err := os.ReadFile(library)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	dir := filepath.Join(below, hex.EncodeToString(sum[:8]))
	file := filepath.Join(dir, libraryName)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if there, err := os.ReadFile(file); err == nil && sha256.Sum256(there) == sum {
		return file, nil
	}
	fresh, err := os.CreateTemp(below, ".library.*.tmp")
	if err != nil {
		return "", err
	}
	defer os.Remove(fresh.Name())
	defer fresh.Close()
	if _, err := fresh.Write(text); err != nil {
		return "", err
	}
	if err := fresh.Chmod(0o755); err != nil {
		return "", err
	}
	return file, os.Rename(fresh.Name(), file)
}

// namespaces that have the label.
type namespaces struct {
	mutex sync.Mutex
	names map[string]bool
}

func (n *namespaces) has(name string) bool {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return n.names[name]
}

func (n *namespaces) set(object any, is bool) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	namespace, ok := object.(*v1.Namespace)
	if !ok {
		return
	}
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if n.names == nil {
		n.names = map[string]bool{}
	}
	if is && namespace.Labels[nri.PreloadLabel] == "true" {
		n.names[namespace.Name] = true
	} else {
		delete(n.names, namespace.Name)
	}
}

func (n *namespaces) watch(ctx context.Context, d *Driver) {
	labelled := func(options *metav1.ListOptions) { options.LabelSelector = nri.PreloadLabel + "=true" }
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewFilteredListWatchFromClient(d.client.CoreV1().RESTClient(), "namespaces", "", labelled),
		ObjectType:    &v1.Namespace{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { n.set(object, true) },
			UpdateFunc: func(_, now any) { n.set(now, true) },
			DeleteFunc: func(object any) { n.set(object, false) },
		},
	})
	controller.RunWithContext(ctx)
}
