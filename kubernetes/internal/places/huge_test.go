package places

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAMountSaysWhetherItHasHugePages(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mountinfo")
	text := `22 1 0:20 / / rw - ext4 /dev/vda rw
36 22 0:25 / /run/prezero/2M/claim-a.0 rw,nosuid,nodev,noexec shared:7 - tmpfs none rw,size=4096k,nr_inodes=2,mode=755,huge=always
37 22 0:26 / /run/prezero/2M/claim-b.0 rw - tmpfs none rw,size=4096k
38 22 0:27 / /run/with\040space rw shared:1 master:2 - tmpfs none rw,huge=never
39 22 0:28 / /run/advised rw - tmpfs none rw,huge=advise
40 22 0:29 / /run/pool rw - hugetlbfs none rw,pagesize=2M
cut
`
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	found := tmpfs(file)
	for at, expected := range map[string]bool{"/run/prezero/2M/claim-a.0": true, "/run/prezero/2M/claim-b.0": false, "/run/with space": false, "/run/advised": true} {
		options, ok := found[at]
		if !ok || huge(options) != expected {
			t.Errorf("%s: %q %v", at, options, ok)
		}
	}
	if len(found) != 4 {
		t.Error(found)
	}
}

func TestAKernelThatDeniesHugePagesIsBelieved(t *testing.T) {
	for text, denies := range map[string]bool{"always within_size advise never [deny] force\n": true, "always within_size [advise] never deny force\n": false} {
		h := host(t)
		file := filepath.Join(h.Sys, "kernel/mm/transparent_hugepage/shmem_enabled")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if h.denies() != denies {
			t.Error(text)
		}
	}
	if host(t).denies() {
		t.Error("a kernel without the file")
	}
}
