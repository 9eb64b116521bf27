package rig

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"testing"
)

// Image is the name of the image that WriteImage writes.
const Image = "prezero.dev/inside:1"

// WriteImage writes an archive that container runtimes import: the program `inside`, and nothing else. Without another
// command its containers only wait, as those of pods' sandboxes do.
func WriteImage(t testing.TB, file string) {
	t.Helper()
	program, err := os.ReadFile(Build(t, "prezero.dev/kubernetes/test/level1/inside", "netgo,osusergo"))
	if err != nil {
		t.Fatal(err)
	}
	layer := archive(t, map[string][]byte{"inside": program})
	config, err := json.Marshal(map[string]any{"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/inside", "wait"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}}})
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{Image}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		t.Fatal(err)
	}
	whole := archive(t, map[string][]byte{"manifest.json": manifest, "config.json": config, "layer.tar": layer})
	if err := os.WriteFile(file, whole, 0o644); err != nil {
		t.Fatal(err)
	}
}

func archive(t testing.TB, files map[string][]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	writer := tar.NewWriter(&out)
	for name, text := range files {
		if err := writer.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := writer.Write(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
