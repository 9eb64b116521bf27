// Package level0 plays the kubelet on the driver's sockets, and kills driver and broker at any time.
package level0

import (
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	resourceapi "k8s.io/api/resource/v1"

	"prezero.dev/kubernetes/internal/ledger"
	"prezero.dev/kubernetes/internal/rig"
)

const mib = 1 << 20

// claimOf is short for it.
type claimOf = resourceapi.ResourceClaim

// node is all that stands on one node.
type node struct {
	*testing.T
	api    *rig.API
	broker *rig.Broker
	driver *rig.Driver
}

// newNode has a broker with a file system of this size, and a driver.
func newNode(t *testing.T, size, config string, args ...string) *node {
	b := rig.NewBroker(t, size, config)
	api := rig.NewAPI(t)
	return &node{t, api, b, rig.NewDriver(t, api, b.Socket, b.Files, args...)}
}

// claim is one that the API server knows.
func (n *node) claim(number int, mib int64, parameters string) *resourceapi.ResourceClaim {
	claim := rig.Claim(number, mib, parameters)
	n.api.Put(rig.ClaimPath(claim), claim)
	return claim
}

// open is the claim's file, as a process outside its pod has it.
func (n *node) open(claim *resourceapi.ResourceClaim) *os.File {
	n.Helper()
	file, err := os.OpenFile(n.file(claim), os.O_RDWR, 0)
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { _ = file.Close() })
	return file
}

func (n *node) prepare(claim *resourceapi.ResourceClaim) []string {
	n.Helper()
	var ids []string
	var err error
	rig.Until(n, "claim "+claim.Name+" is prepared", func() bool {
		ids, err = n.driver.Prepare(claim)
		return err == nil
	})
	return ids
}

func (n *node) unprepare(claim *resourceapi.ResourceClaim) {
	n.Helper()
	if err := n.driver.Unprepare(claim); err != nil {
		n.Fatal(err)
	}
}

// file of a claim's lease: the one of it that lies there.
func (n *node) file(claim *resourceapi.ResourceClaim) string {
	n.Helper()
	return ledger.File(n.broker.Files, rig.LeaseOf(n, n.broker.Files, claim.UID))
}

func list(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	names := []string{}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// leases that lie there: what was given back the broker unmounts a moment later.
func (n *node) leases() []string {
	n.Helper()
	return slices.DeleteFunc(list(n, n.broker.Files), func(name string) bool {
		_, err := os.Lstat(ledger.File(n.broker.Files, name))
		return err != nil
	})
}

// books must name just these claims: one file, one record, one CDI file for the lease and one for what is told of it
// each, and no byte more in the file system than their sizes and the broker's stock.
func (n *node) books(claims ...*resourceapi.ResourceClaim) {
	n.Helper()
	var files, records, specs, told []string
	var bytes int64
	for _, claim := range claims {
		files = append(files, rig.LeaseOf(n, n.broker.Files, claim.UID))
		records = append(records, string(claim.UID))
		specs = append(specs, "prezero.dev-lease_"+string(claim.UID)+".yaml", "prezero.dev_metadata_"+string(claim.UID)+"_ram.json")
		told = append(told, claim.Namespace+"_"+claim.Name)
		size := claim.Status.Allocation.Devices.Results[0].ConsumedCapacity["size"]
		bytes += size.Value()
	}
	for what, pair := range map[string][2][]string{
		"files":     {files, n.leases()},
		"records":   {records, list(n, n.driver.Path("data/claims"))},
		"CDI files": {specs, whole(list(n, n.driver.Path("cdi")))},
		"metadata":  {told, list(n, n.driver.Path("data/dra-device-metadata"))},
	} {
		sort.Strings(pair[0])
		sort.Strings(pair[1])
		if strings.Join(pair[0], " ") != strings.Join(pair[1], " ") {
			n.Fatalf("%s: %v, expected %v", what, pair[1], pair[0])
		}
	}
	var held int64
	for _, file := range files {
		var stat unix.Stat_t
		if err := unix.Stat(ledger.File(n.broker.Files, file), &stat); err != nil {
			n.Fatal(err)
		}
		if stat.Blocks*512 != stat.Size {
			n.Fatalf("%s has %d of %d bytes populated", file, stat.Blocks*512, stat.Size)
		}
		held += stat.Size
	}
	if held != bytes {
		n.Fatalf("%d bytes held, the claims have %d", held, bytes)
	}
}

// nothing is left once broker and driver have ended: not a byte of the file system.
func (n *node) nothingIsLeft() {
	n.Helper()
	n.books()
	rig.Until(n, "the broker unmounts what was given back", func() bool { return len(list(n, n.broker.Files)) == 0 })
	n.broker.Kill()
	rig.Until(n, "the file system is empty", func() bool { return n.broker.Used() == 0 })
}

func isZero(t testing.TB, path string) bool {
	t.Helper()
	bytes, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bytes {
		if b != 0 {
			return false
		}
	}
	return true
}

func spec(n *node, claim *resourceapi.ResourceClaim) string {
	text, err := os.ReadFile(n.driver.Path(fmt.Sprintf("cdi/prezero.dev-lease_%s.yaml", claim.UID)))
	if err != nil {
		n.Fatal(err)
	}
	return string(text)
}

// whole leaves out what the CDI library was writing when its process was killed, and what no runtime reads.
func whole(specs []string) []string {
	return slices.DeleteFunc(specs, func(name string) bool { return strings.HasSuffix(name, ".tmp") })
}
