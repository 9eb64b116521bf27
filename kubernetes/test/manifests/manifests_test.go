// Package manifests reads what is applied to a cluster, as strictly as an API server does.
package manifests

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"

	"prezero.dev/kubernetes/internal/params"
)

const dir = "../../manifests"

func objects(t *testing.T, path string) []runtime.Object {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	var all []runtime.Object
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		object, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		all = append(all, object)
	}
}

func files(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) == 0 {
		t.Fatal(pattern, err)
	}
	return found
}

func TestEveryFieldIsOneOfTheAPI(t *testing.T) {
	kustomization, err := os.ReadFile(filepath.Join(dir, "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files(t, "*.yaml") {
		if name := filepath.Base(path); name != "kustomization.yaml" {
			objects(t, path)
			if !strings.Contains(string(kustomization), "- "+name) {
				t.Errorf("kustomization.yaml lacks %s", name)
			}
		}
	}
}

func TestEachExampleHasAPodThatUsesItsClaimAndParametersThatTheDriverTakes(t *testing.T) {
	for _, path := range files(t, "examples/*.yaml") {
		all := objects(t, path)
		if len(all) != 2 {
			t.Fatalf("%s has %d objects", path, len(all))
		}
		template := all[0].(*resourceapi.ResourceClaimTemplate)
		claim := &resourceapi.ResourceClaim{Spec: template.Spec.Spec}
		allocation := &resourceapi.AllocationResult{}
		for _, config := range claim.Spec.Devices.Config {
			allocation.Devices.Config = append(allocation.Devices.Config, resourceapi.DeviceAllocationConfiguration{
				Source: resourceapi.AllocationConfigSourceClaim, Requests: config.Requests, DeviceConfiguration: config.DeviceConfiguration})
		}
		claim.Status.Allocation = allocation
		if _, err := params.For(claim, claim.Spec.Devices.Requests[0].Name); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestOneDirectoryIsNamedToMountBrokerAndDriver(t *testing.T) {
	config, err := os.ReadFile(filepath.Join(dir, "prezerod.toml"))
	if err != nil {
		t.Fatal(err)
	}
	spec := objects(t, filepath.Join(dir, "daemonset.yaml"))[0].(*appsv1.DaemonSet).Spec.Template.Spec
	const files = "/run/prezero/2M"
	driver := strings.Join(spec.Containers[1].Command, " ")
	if !strings.Contains(string(config), `files = ["`+files+`"]`) || !strings.Contains(driver, "--files="+files) || !strings.Contains(spec.InitContainers[0].Args[0], files) {
		t.Error("the init container, prezerod.toml and the driver differ in the directory")
	}
	program := os.Getenv("PREZEROD")
	if _, err := os.Stat(program); err != nil {
		t.Skip("the configuration is not read: no prezerod; run `make build`, or set PREZEROD")
	}
	if out, err := exec.Command(program, "--check", filepath.Join(dir, "prezerod.toml")).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
