package delivery

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"prezero.dev/kubernetes/internal/ledger"
)

// The kubelet asks twice where a driver was slow: both answers are whole.
func TestMetadataThatIsWrittenTwiceAtOnceIsWhole(t *testing.T) {
	file := filepath.Join(t.TempDir(), "metadata.json")
	claims, err := ledger.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 20 {
				if err := MetadataFiles(claims).WriteFile(file, []byte("{}"), 0o644); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	text, err := os.ReadFile(file)
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), "*"))
	if err != nil || string(text) != "{}" || len(left) != 1 {
		t.Error(err, string(text), left)
	}
}

func TestMetadataOfAClaimGoesAndThatOfOthersStays(t *testing.T) {
	data, cdi := t.TempDir(), t.TempDir()
	put := func(file, text string) string {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	spec := func(host string) string {
		return `{"devices": [{"name": "d", "containerEdits": {"mounts": [{"hostPath": "` + host + `", "containerPath": "/x"}]}}]}`
	}
	mine := put(filepath.Join(data, metadataFolder, "default_a", "ram", "metadata.json"), "{}")
	others := put(filepath.Join(data, metadataFolder, "default_b", "ram", "metadata.json"), "{}")
	strange := put(filepath.Join(t.TempDir(), "a", "ram", "metadata.json"), "{}")
	gone := []string{
		put(filepath.Join(cdi, metadataPrefix+"u-1_ram.json"), spec(mine)),
		// What names a directory elsewhere, or nothing, takes only itself away.
		put(filepath.Join(cdi, metadataPrefix+"u-1_disk.json"), spec(strange)),
		put(filepath.Join(cdi, metadataPrefix+"u-1_up.json"), spec(data+"/"+metadataFolder+"/../../x/y")),
		put(filepath.Join(cdi, metadataPrefix+"u-1_cut.json"), "{"),
		put(filepath.Join(cdi, "."+metadataPrefix+"u-1_ram.json.17.tmp"), spec(mine)),
		filepath.Dir(filepath.Dir(mine)),
	}
	stay := []string{others, strange, put(filepath.Join(cdi, metadataPrefix+"u-10_ram.json"), spec(others)), data}
	for range 2 {
		if err := RemoveMetadata(data, cdi, "u-1"); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range gone {
		if _, err := os.Lstat(file); err == nil {
			t.Error(file, "is still there")
		}
	}
	for _, file := range stay {
		if _, err := os.Lstat(file); err != nil {
			t.Error(err)
		}
	}
}
