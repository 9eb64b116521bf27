package delivery

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"prezero.dev/kubernetes/internal/ledger"
	"prezero.dev/kubernetes/internal/params"
)

func TestAClaimWithSeveralLeasesTellsThemApart(t *testing.T) {
	dir := t.TempDir()
	cdi, err := NewCDI(dir)
	if err != nil {
		t.Fatal(err)
	}
	claim := &ledger.Claim{UID: "u-1", Known: "my-ram", Pieces: []ledger.Piece{
		{Request: "ram", Deliver: params.File, Bytes: 7},
		{Request: "ram", Deliver: params.File, Bytes: 8},
		{Request: "pool/large", Deliver: params.Socket},
		{Request: "a/b", Deliver: params.File, Bytes: 9}, {Request: "a-b", Deliver: params.File, Bytes: 10}, {Request: "ram-1", Deliver: params.File, Bytes: 11},
	}}
	if err := cdi.Write(claim, []string{"/leases/u-1.0", "/leases/u-1.1", "/data/u-1/2/prezerod.sock", "/leases/u-1.3", "/leases/u-1.4", "/leases/u-1.5"}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, SpecName("u-1")+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"PREZERO_LEASE=/run/prezero/leases/u-1/ram\n", "PREZERO_LEASE_RAM=/run/prezero/leases/u-1/ram\n", "PREZERO_BYTES_RAM=7\n",
		"PREZERO_LEASE_RAM_2=/run/prezero/leases/u-1/ram-2\n", "PREZERO_BYTES_RAM_2=8\n",
		"PREZERO_LEASE_RAM_1=/run/prezero/leases/u-1/ram-1\n", "PREZERO_BYTES_RAM_1=11\n", "PREZERO_LEASE_MY_RAM__RAM=/run/prezero/leases/u-1/ram\n",
		"PREZERO_LEASE_A_B=/run/prezero/leases/u-1/a-b\n", "PREZERO_LEASE_A_B_1=/run/prezero/leases/u-1/a-b-1\n",
		"containerPath: /run/prezero/leases/u-1/a-b\n", "containerPath: /run/prezero/leases/u-1/a-b-1\n", "    - ro\n",
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
		"prezero.dev_metadata_a-b_ram.json": "a-b", "prezero.dev_metadata_a-b_ram.yaml": "", "prezero.dev_metadata_a-b.json": "", "x_metadata_a_b.json": "",
	} {
		if owner := SpecOwner(file); string(owner) != uid {
			t.Errorf("%s: %q", file, owner)
		}
	}
	for file, uid := range map[string]string{"claim-a-b.0.0123456789ab": "a-b", "claim-a-b.0.0123456789a": "", "claim-a-b.0": "a-b", "claim-a-b.17": "a-b", "claim-a-b": "", "claim-.a.0": "", "claim-a/b.0": "",
		"guest-image.1": "", "00000000-0000-4000-8000-000000000001.0": "", "keep.me": "", "claim-1": ""} {
		if owner := ledger.Owner(file); string(owner) != uid {
			t.Errorf("%s: %q", file, owner)
		}
	}
}

// Of any requests and claims that one container has, each variable is of one lease, and says one thing of it.
func TestNoVariableIsOfTwoLeases(t *testing.T) {
	names := []string{"ram", "bytes-ram", "ram-bytes", "a-b", "a--b", "a", "b", "a-ram", "a--ram", "ram-2", "ram-h", "ah", "bytes", "lease", "socket", "lease-ram"}
	dir, seen := t.TempDir(), map[string]string{}
	cdi, err := NewCDI(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, deliver := range []params.Deliver{params.File, params.Socket} {
		for n, known := range append(names, "a.b", "a-.b", "ad-b") {
			claim := &ledger.Claim{UID: types.UID(fmt.Sprintf("%s-%d", deliver, n)), Known: known}
			var paths []string
			for _, request := range names {
				claim.Pieces = append(claim.Pieces, ledger.Piece{Request: request, Deliver: deliver})
				paths = append(paths, "/somewhere/of/"+request)
			}
			if err := cdi.Write(claim, paths); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(filepath.Join(dir, SpecName(claim.UID)+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			// A variable without the claim's name is of one of the claims that have such a request.
			for _, match := range regexp.MustCompile(`- (PREZERO_[A-Za-z0-9_]+)=(.*)`).FindAllStringSubmatch(string(text), -1) {
				what := match[2]
				if !strings.Contains(match[1], "__") {
					what = strings.ReplaceAll(what, string(claim.UID), "")
				}
				if before, is := seen[match[1]]; is && before != what && match[1] != "PREZERO_LEASE" && match[1] != "PREZERO_SOCKET" {
					t.Errorf("%s is %s, and %s", match[1], before, what)
				}
				seen[match[1]] = what
			}
		}
	}
}
