package places

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"prezero.dev/kubernetes/internal/broker"
)

const gib = 1 << 30

// host with two nodes, of which the second has a pool of eight pages.
func host(t *testing.T) Host {
	sys := t.TempDir()
	for name, text := range map[string]string{
		"devices/system/node/has_memory":                                    "0-1,4\n",
		"devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages": "0\n",
		"devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages": "8\n",
		"devices/system/node/node4/hugepages/hugepages-2048kB/nr_hugepages": "1024\n",
	} {
		path := filepath.Join(sys, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Host{Sys: sys}
}

func TestNodesAreThoseThatHaveMemory(t *testing.T) {
	if nodes := host(t).Nodes(); !slices.Equal(nodes, []int{0, 1, 4}) {
		t.Error(nodes)
	}
	if nodes := (Host{Sys: t.TempDir()}).Nodes(); !slices.Equal(nodes, []int{0}) {
		t.Error(nodes)
	}
	for text, expected := range map[string][]int{"0": {0}, "0-2,7": {0, 1, 2, 7}, "": nil, "x": nil, "1-": nil} {
		if numbers := list(text); !slices.Equal(numbers, expected) {
			t.Errorf("%q: %v", text, numbers)
		}
	}
}

func TestRoomIsBoundedByTheFileSystemAndByThePoolOfTheNode(t *testing.T) {
	h := host(t)
	tmpfs := Place{Page: broker.Huge, Backing: broker.Thp, Size: 3*gib + 5<<20}
	pool := Place{Page: broker.Huge, Backing: broker.Hugetlb}
	bounded := Place{Page: broker.Huge, Backing: broker.Hugetlb, Size: 3 * gib}
	for _, c := range []struct {
		place Place
		node  int
		room  uint64
	}{
		{tmpfs, 0, gib},
		{pool, 0, 0},
		{pool, 1, 16 << 20},
		{pool, 4, 2 * gib},
		{bounded, 1, 16 << 20},
		{bounded, 4, gib},
	} {
		if room := h.Room(c.place, c.node, 3); room != c.room {
			t.Errorf("%+v on node %d: %d, expected %d", c.place, c.node, room, c.room)
		}
	}
}

func TestAnOrdinaryDirectoryIsNoPlace(t *testing.T) {
	for dir, words := range map[string]string{"/proc": "mount a tmpfs", "/nowhere": "make it"} {
		if _, err := Of(dir); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
