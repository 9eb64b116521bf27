// Package rig plays what stands around the driver in tests: the API server, the kubelet, the broker.
package rig

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

// API is as much of an API server as the driver talks to: objects by path, without validation.
type API struct {
	*httptest.Server
	mutex   sync.Mutex
	objects map[string]*unstructured.Unstructured
	version int
	events  []string
	watches map[chan []byte]string
	// Writes counts changes of resource slices.
	Writes atomic.Int64
	// Down has every request fail.
	Down atomic.Bool
	// DropTaints is an API server without DRADeviceTaints.
	DropTaints atomic.Bool
	// DropBinding is one without DRADeviceBindingConditions.
	DropBinding atomic.Bool
}

// NewAPI serves until the test ends.
func NewAPI(t testing.TB) *API {
	api := &API{objects: map[string]*unstructured.Unstructured{}, watches: map[chan []byte]string{}}
	api.Server = httptest.NewServer(http.HandlerFunc(api.serve))
	t.Cleanup(func() {
		api.CloseClientConnections()
		api.Close()
	})
	return api
}

// Kubeconfig of a server that asks for no credentials, and knows the rig's node.
func (a *API) Kubeconfig(t testing.TB) string {
	a.Put("/api/v1/nodes/"+Node, &v1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: Node, UID: "node-uid"}})
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q}}]\nusers: [{name: u, user: {}}]\n"+
		"contexts: [{name: c, context: {cluster: c, user: u}}]\ncurrent-context: c\n", a.URL)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// Put has an object at a path such as /apis/resource.k8s.io/v1/namespaces/default/resourceclaims/a.
func (a *API) Put(path string, object any) {
	raw, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	item := &unstructured.Unstructured{}
	if err := json.Unmarshal(raw, &item.Object); err != nil {
		panic(err)
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.store(path, item, "MODIFIED")
}

// Delete an object.
func (a *API) Delete(path string) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.remove(path)
}

// Get an object; false: there is none.
func (a *API) Get(path string, into any) bool {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	object, ok := a.objects[path]
	if ok {
		raw, _ := json.Marshal(object.Object)
		_ = json.Unmarshal(raw, into)
	}
	return ok
}

// List the objects below a path.
func (a *API) List(prefix string) []*unstructured.Unstructured {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.below(prefix)
}

// Events that were written, as their messages.
func (a *API) Events() []string {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return append([]string(nil), a.events...)
}

func (a *API) below(prefix string) []*unstructured.Unstructured {
	var found []*unstructured.Unstructured
	for path, object := range a.objects {
		if isBelow(path, prefix) {
			found = append(found, object)
		}
	}
	return found
}

// isBelow tells whether an object belongs to a list: of all namespaces, if the list names none.
func isBelow(path, prefix string) bool {
	const claims = "/resourceclaims"
	return strings.HasPrefix(path, prefix+"/") || strings.HasSuffix(prefix, "/v1"+claims) && strings.Contains(path, claims+"/")
}

func (a *API) store(path string, object *unstructured.Unstructured, kind string) {
	a.version++
	if object.GetUID() == "" {
		object.SetUID(types.UID(fmt.Sprintf("uid-%d", a.version)))
	}
	object.SetResourceVersion(fmt.Sprint(a.version))
	a.objects[path] = object
	a.notify(path, kind, object)
}

func (a *API) remove(path string) {
	if object, ok := a.objects[path]; ok {
		delete(a.objects, path)
		a.notify(path, "DELETED", object)
	}
}

func (a *API) notify(path, kind string, object *unstructured.Unstructured) {
	line, _ := json.Marshal(map[string]any{"type": kind, "object": object.Object})
	for watch, prefix := range a.watches {
		if isBelow(path, prefix) {
			select {
			case watch <- line:
			default:
			}
		}
	}
}

func (a *API) serve(w http.ResponseWriter, r *http.Request) {
	if a.Down.Load() {
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	}
	path := strings.TrimSuffix(r.URL.Path, "/status")
	body, _ := io.ReadAll(r.Body)
	if strings.HasSuffix(path, "/events") && r.Method == http.MethodPost {
		event := object(body)
		a.mutex.Lock()
		a.events = append(a.events, fmt.Sprint(event.Object["message"]))
		a.mutex.Unlock()
		respond(w, http.StatusCreated, event.Object)
		return
	}
	if r.URL.Query().Get("watch") != "" {
		a.watch(w, r, path)
		return
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	stored, ok := a.objects[path]
	item := object(body)
	isSlice := strings.Contains(path, "/resourceslices")
	switch r.Method {
	case http.MethodGet:
		if ok {
			respond(w, http.StatusOK, stored.Object)
			return
		}
		if list := a.below(path); len(list) > 0 || isSlice || strings.HasSuffix(path, "/resourceclaims") {
			items := make([]any, len(list))
			for n, object := range list {
				items[n] = object.Object
			}
			respond(w, http.StatusOK, map[string]any{"kind": "List", "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": fmt.Sprint(a.version)}, "items": items})
			return
		}
	case http.MethodPost:
		if item.GetName() == "" {
			a.version++
			item.SetName(item.GetGenerateName() + fmt.Sprint(a.version))
		}
		a.drop(item)
		a.store(path+"/"+item.GetName(), item, "ADDED")
		if isSlice {
			a.Writes.Add(1)
		}
		respond(w, http.StatusCreated, item.Object)
		return
	case http.MethodPut, http.MethodPatch:
		if ok {
			// Of an apply only the status is looked at.
			if r.Method == http.MethodPatch {
				for key, value := range item.Object {
					stored.Object[key] = merge(stored.Object[key], value)
				}
				item = stored
			}
			a.drop(item)
			a.store(path, item, "MODIFIED")
			if isSlice {
				a.Writes.Add(1)
			}
			respond(w, http.StatusOK, item.Object)
			return
		}
	case http.MethodDelete:
		a.remove(path)
		respond(w, http.StatusOK, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"})
		return
	}
	respond(w, http.StatusNotFound, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure",
		"reason": string(metav1.StatusReasonNotFound), "code": http.StatusNotFound, "message": path + " not found"})
}

// object of a body, which clients send as JSON or as protobuf.
func object(body []byte) *unstructured.Unstructured {
	item := &unstructured.Unstructured{Object: map[string]any{}}
	if decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil); err == nil {
		if fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(decoded); err == nil {
			item.Object = fields
			return item
		}
	}
	_ = json.Unmarshal(body, &item.Object)
	return item
}

// drop fields of devices, as an API server does with those of features that are off.
func (a *API) drop(object *unstructured.Unstructured) {
	var off []string
	if a.DropTaints.Load() {
		off = append(off, "taints")
	}
	if a.DropBinding.Load() {
		off = append(off, "bindingConditions", "bindingFailureConditions")
	}
	devices, _, _ := unstructured.NestedSlice(object.Object, "spec", "devices")
	if len(off) == 0 || len(devices) == 0 {
		return
	}
	for _, device := range devices {
		for _, field := range off {
			delete(device.(map[string]any), field)
		}
	}
	_ = unstructured.SetNestedSlice(object.Object, devices, "spec", "devices")
}

func merge(old, fresh any) any {
	was, ok := old.(map[string]any)
	is, both := fresh.(map[string]any)
	if !ok || !both {
		return fresh
	}
	for key, value := range is {
		was[key] = merge(was[key], value)
	}
	return was
}

func (a *API) watch(w http.ResponseWriter, r *http.Request, prefix string) {
	lines := make(chan []byte, 1024)
	a.mutex.Lock()
	a.watches[lines] = prefix
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for _, object := range a.below(prefix) {
			line, _ := json.Marshal(map[string]any{"type": "ADDED", "object": object.Object})
			lines <- line
		}
		kind, version := "ResourceSlice", "resource.k8s.io/v1"
		if strings.HasSuffix(prefix, "/nodes") {
			kind, version = "Node", "v1"
		}
		if strings.HasSuffix(prefix, "/resourceclaims") {
			kind, version = "ResourceClaim", "resource.k8s.io/v1"
		}
		if strings.HasSuffix(prefix, "/namespaces") {
			kind, version = "Namespace", "v1"
		}
		bookmark, _ := json.Marshal(map[string]any{"type": "BOOKMARK", "object": map[string]any{"kind": kind, "apiVersion": version,
			"metadata": map[string]any{"resourceVersion": fmt.Sprint(a.version), "annotations": map[string]any{"k8s.io/initial-events-end": "true"}}}})
		lines <- bookmark
	}
	a.mutex.Unlock()
	defer func() {
		a.mutex.Lock()
		delete(a.watches, lines)
		a.mutex.Unlock()
	}()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	flusher := w.(http.Flusher)
	flusher.Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case line := <-lines:
			_, _ = w.Write(append(line, '\n'))
			flusher.Flush()
		case <-time.After(time.Minute):
			return
		}
	}
}

func respond(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}
