package level1

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	oci "github.com/opencontainers/runtime-spec/specs-go"

	"prezero.dev/kubernetes/internal/nri"
)

// The host's programs in a container that the plugin edited, as a runtime applies it.
func TestProgramsOfAContainerHaveThePreloadedLibrary(t *testing.T) {
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip("skipped: no runc; apt-get install runc")
	}
	library := os.Getenv("LIBPREZERO")
	if library == "" {
		library, _ = filepath.Abs("../../../target/release/libprezero.so")
	}
	if _, err := os.Stat(library); err != nil {
		t.Skipf("skipped: %v; run `make build`, or set LIBPREZERO", err)
	}
	folder := t.TempDir()
	text, err := os.ReadFile(library)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "libprezero.so"), text, 0o755); err != nil {
		t.Fatal(err)
	}
	plugin := &nri.Plugin{Yield: func(context.Context, nri.Promised) error { return nil },
		Preload: &nri.Preload{File: func() string { return filepath.Join(folder, "libprezero.so") }, Wanted: func(string) bool { return true }}}
	adjust, _, err := plugin.CreateContainer(context.Background(), &api.PodSandbox{Namespace: "team"}, &api.Container{Id: "c"})
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("prezero-preload-%d", os.Getpid())
	dir := bundle(t, func(spec *oci.Spec) {
		for _, path := range []string{"/bin", "/lib", "/lib64", "/usr"} {
			if source, err := filepath.EvalSymlinks(path); err == nil {
				spec.Mounts = append(spec.Mounts, oci.Mount{Source: source, Destination: path, Type: "bind", Options: []string{"rbind", "ro"}})
			}
		}
		for _, mount := range adjust.Mounts {
			spec.Mounts = append(spec.Mounts, oci.Mount{Source: mount.Source, Destination: mount.Destination, Type: mount.Type, Options: mount.Options})
		}
		for _, env := range adjust.Env {
			spec.Process.Env = append(spec.Process.Env, env.Key+"="+env.Value)
		}
		spec.Linux.CgroupsPath = "/" + name
		// A child, too; a static program and one with a cleared environment run without it.
		spec.Process.Args = []string{"/bin/sh", "-c", "grep -c libprezero.so /proc/self/maps; env -i grep -c libprezero.so /proc/self/maps; /inside told"}
	})
	out, err := exec.Command("runc", "run", "-b", dir, name).CombinedOutput()
	lines := strings.Split(string(out), "\n")
	if err != nil || len(lines) < 3 || lines[0] == "0" || lines[1] != "0" || !strings.HasPrefix(lines[2], "{") {
		t.Fatalf("%v: %s", err, out)
	}
}
