package places

import (
	"os"
	"path/filepath"
	"strings"

	"prezero.dev/kubernetes/internal/broker"
)

// Small are the leases in a directory of which the kernel maps small pages, though they were made of huge ones: those of
// a tmpfs that is mounted without `huge=`, and all of them where the kernel denies huge pages of shared memory.
// The first use of such a lease takes a fault for each 4 KiB. What cannot be looked at is none.
func (h Host) Small(place Place) []Lease {
	all := Mounted(place.Dir)
	if place.Backing != broker.Thp || len(all) == 0 {
		return nil
	}
	denied := h.denies()
	systems := tmpfs("/proc/self/mountinfo")
	var small []Lease
	for _, lease := range all {
		options, known := systems[filepath.Join(place.Dir, lease.Name)]
		if known && !lease.GivenBack && (denied || !huge(options)) {
			small = append(small, lease)
		}
	}
	return small
}

// denies tells whether the kernel makes no huge pages of shared memory, whatever a mount says.
func (h Host) denies() bool {
	text, err := os.ReadFile(filepath.Join(h.Sys, "kernel/mm/transparent_hugepage/shmem_enabled"))
	return err == nil && strings.Contains(string(text), "[deny]")
}

// huge tells whether a tmpfs with these options has huge pages: `never` is what it has without the option.
func huge(options string) bool {
	for option := range strings.SplitSeq(options, ",") {
		if value, ok := strings.CutPrefix(option, "huge="); ok {
			return value != "never"
		}
	}
	return false
}

// tmpfs that are mounted, by their place, with the options of each file system.
func tmpfs(mountinfo string) map[string]string {
	text, err := os.ReadFile(mountinfo)
	if err != nil {
		return nil
	}
	found := map[string]string{}
	for line := range strings.Lines(string(text)) {
		// 36 35 0:25 / /run/prezero/2M rw,nosuid shared:7 - tmpfs prezero rw,size=4194304k,huge=always
		of, system, ok := strings.Cut(line, " - ")
		at, what := strings.Fields(of), strings.Fields(system)
		if ok && len(at) > 4 && len(what) > 2 && what[0] == "tmpfs" {
			found[unescape.Replace(at[4])] = what[2]
		}
	}
	return found
}

var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
