// Package places knows the directories in which leases are files, and what fits there.
//
// Each is the root or a folder of a tmpfs or a hugetlbfs, and stands in `files` of the broker's tenant under the
// same path. The file system bounds what may be leased: its size, and for a hugetlbfs the node's pool.
package places

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"prezero.dev/kubernetes/internal/broker"
)

// Place is one directory.
type Place struct {
	Dir     string
	Page    broker.Page
	Backing broker.Backing
	// Size of the file system; 0: it has none of its own.
	Size uint64
	// Used bytes of it, by leases and by what the broker has ready.
	Used uint64
}

// Of looks at a directory.
func Of(dir string) (Place, error) {
	var stat unix.Statfs_t
	var file unix.Stat_t
	err := unix.Statfs(dir, &stat)
	if err == nil {
		err = unix.Stat(dir, &file)
	}
	if err != nil {
		return Place{}, fmt.Errorf("--files %s: %w; make it, and mount a tmpfs or a hugetlbfs there", dir, err)
	}
	place := Place{Dir: dir}
	switch uint32(stat.Type) {
	case unix.TMPFS_MAGIC:
		place.Page, place.Backing = broker.Huge, broker.Thp
	case unix.HUGETLBFS_MAGIC:
		place.Page, place.Backing = broker.Page(stat.Bsize), broker.Hugetlb
	default:
		return Place{}, fmt.Errorf("--files %s: an ordinary file system; mount a tmpfs or a hugetlbfs there", dir)
	}
	// Leases are open to any user: a pod has its own alone since nothing else leads to them.
	if file.Mode&0o077 != 0 {
		return Place{}, fmt.Errorf("--files %s: other users may enter; mount it with mode=0700", dir)
	}
	if place.Page != broker.Huge && place.Page != broker.Giant {
		return Place{}, fmt.Errorf("--files %s: pages of %s; mount it with pagesize=2M or 1G", dir, place.Page)
	}
	// A file system without a size of its own says 0, or all bits set.
	if stat.Blocks != 0 && stat.Blocks != ^uint64(0) {
		place.Size = stat.Blocks * uint64(stat.Bsize)
		place.Used = (stat.Blocks-stat.Bfree)*uint64(stat.Bsize) + leased(dir)
	}
	return place, nil
}

// leased bytes: each lease is a file system of its own in the directory.
func leased(dir string) uint64 {
	sum := uint64(0)
	for _, one := range Mounted(dir) {
		sum += one.Size
	}
	return sum
}

// Lease is the file system of one, mounted under its name.
type Lease struct {
	Name string
	Size uint64
	// GivenBack: its file is removed, and some process has it open still.
	GivenBack bool
}

// Mounted are the leases that lie in a directory.
func Mounted(dir string) []Lease {
	var own unix.Stat_t
	entries, err := os.ReadDir(dir)
	if err != nil || unix.Stat(dir, &own) != nil {
		return nil
	}
	var all []Lease
	for _, entry := range entries {
		at := filepath.Join(dir, entry.Name())
		var stat unix.Stat_t
		var system unix.Statfs_t
		if unix.Lstat(at, &stat) != nil || stat.Mode&unix.S_IFMT != unix.S_IFDIR || stat.Dev == own.Dev || unix.Statfs(at, &system) != nil {
			continue
		}
		_, err := os.Lstat(filepath.Join(at, "lease"))
		all = append(all, Lease{Name: entry.Name(), Size: system.Blocks * uint64(system.Bsize), GivenBack: err != nil})
	}
	return all
}

// All looks at several directories, one for each size of page.
func All(dirs []string) ([]Place, error) {
	var all []Place
	for _, dir := range dirs {
		place, err := Of(dir)
		if err != nil {
			return nil, err
		}
		for _, other := range all {
			if other.Page == place.Page {
				return nil, fmt.Errorf("--files %s and %s: both have pages of %s; give one of them", other.Dir, dir, place.Page)
			}
		}
		all = append(all, place)
	}
	return all, nil
}

// Host is where the kernel tells of nodes and pools: /sys, but for tests.
type Host struct{ Sys string }

// Nodes are the NUMA nodes that have memory.
func (h Host) Nodes() []int {
	for _, file := range []string{"has_memory", "online"} {
		if text, err := os.ReadFile(filepath.Join(h.Sys, "devices/system/node", file)); err == nil {
			if nodes := list(strings.TrimSpace(string(text))); len(nodes) > 0 {
				return nodes
			}
		}
	}
	return []int{0}
}

// Pool is the size of a node's hugetlb pool in bytes.
func (h Host) Pool(node int, page broker.Page) uint64 {
	size := fmt.Sprintf("hugepages-%dkB/nr_hugepages", uint64(page)>>10)
	for _, dir := range []string{fmt.Sprintf("devices/system/node/node%d/hugepages", node), "kernel/mm/hugepages"} {
		if text, err := os.ReadFile(filepath.Join(h.Sys, dir, size)); err == nil {
			pages, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
			return pages * uint64(page)
		}
	}
	return 0
}

// Room is what may be leased in a place on a node, in whole pages, whatever is ready now.
// The size of the file system is shared evenly by the nodes, so that no two promise the same.
func (h Host) Room(place Place, node, nodes int) uint64 {
	room := uint64(0)
	if place.Size > 0 {
		room = place.Size / uint64(nodes)
	}
	if place.Backing == broker.Hugetlb {
		if pool := h.Pool(node, place.Page); place.Size == 0 || pool < room {
			room = pool
		}
	}
	return room / uint64(place.Page) * uint64(place.Page)
}

// list reads what the kernel writes: `0-3,8`.
func list(text string) []int {
	var numbers []int
	for _, part := range strings.Split(text, ",") {
		from, to, ranged := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		if err != nil {
			return nil
		}
		last := first
		if ranged {
			if last, err = strconv.Atoi(to); err != nil {
				return nil
			}
		}
		for n := first; n <= last; n++ {
			numbers = append(numbers, n)
		}
	}
	return numbers
}
