package delivery

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"prezero.dev/kubernetes/internal/ledger"
	"prezero.dev/kubernetes/internal/params"
)

func TestAClaimWithSeveralLeasesTellsThemApart(t *testing.T) {
	dir := t.TempDir()
	cdi, err := NewCDI(dir)
	if err != nil {
		t.Fatal(err)
	}
	claim := &ledger.Claim{UID: "u-1", Pieces: []ledger.Piece{
		{Request: "ram", Deliver: params.File, Bytes: 7},
		{Request: "ram", Deliver: params.File, Bytes: 8},
		{Request: "pool/large", Deliver: params.Socket},
	}}
	if err := cdi.Write(claim, []string{"/leases/u-1.0", "/leases/u-1.1", "/data/u-1/2/prezerod.sock"}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, SpecName("u-1")+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"PREZERO_LEASE=/run/prezero/leases/u-1/ram\n", "PREZERO_LEASE_RAM=/run/prezero/leases/u-1/ram\n", "PREZERO_LEASE_BYTES_RAM=7\n",
		"PREZERO_LEASE_RAM_1=/run/prezero/leases/u-1/ram-1\n", "PREZERO_LEASE_BYTES_RAM_1=8\n",
		"PREZERO_SOCKET=/run/prezero/leases/u-1/pool-large/prezerod.sock\n", "hostPath: /data/u-1/2\n", "hostPath: /leases/u-1.1\n",
	} {
		if strings.Count(string(text), line) != 1 {
			t.Errorf("%q stands %d times in\n%s", line, strings.Count(string(text), line), text)
		}
	}
	if err := cdi.Remove("u-1"); err != nil {
		t.Fatal(err)
	}
	if err := cdi.Remove("u-1"); err != nil {
		t.Fatal(err)
	}
}

func TestFilesTellWhoseTheyAre(t *testing.T) {
	for file, uid := range map[string]string{
		SpecName("a-b") + ".yaml": "a-b", SpecName("a-b"): "", "nvidia.com-gpu_a.yaml": "", "prezero.dev-lease_.yaml": "",
	} {
		if owner := SpecOwner(file); string(owner) != uid {
			t.Errorf("%s: %q", file, owner)
		}
	}
	for file, uid := range map[string]string{"a-b.0": "a-b", "a-b.17": "a-b", "a-b": "", ".a.0": "", "a/b.0": "", "a.b.0": ""} {
		if owner := ledger.Owner(file); string(owner) != uid {
			t.Errorf("%s: %q", file, owner)
		}
	}
}
