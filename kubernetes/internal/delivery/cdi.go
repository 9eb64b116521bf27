// Package delivery brings named leases into containers: as a file that CDI mounts, or over a socket.
package delivery

import (
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"prezero.dev/kubernetes/internal/ledger"
	"prezero.dev/kubernetes/internal/params"
)

const (
	class = "lease"
	// Folder holds the leases of a container.
	Folder = "/run/prezero/leases"
)

// CDI writes what a container runtime is to do, one file a claim.
type CDI struct{ cache *cdi.Cache }

// NewCDI writes to this directory, which container runtimes read.
func NewCDI(dir string) (*CDI, error) {
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dir), cdi.WithAutoRefresh(false))
	if err != nil {
		return nil, fmt.Errorf("--cdi %s: %w", dir, err)
	}
	return &CDI{cache}, nil
}

// SpecName is the name of a claim's file, without its ending.
func SpecName(uid types.UID) string {
	return cdi.GenerateTransientSpecName(params.Driver, class, string(uid))
}

// SpecOwner is the claim whose file has this name; "": it is none of ours.
func SpecOwner(file string) types.UID {
	name := strings.TrimSuffix(strings.TrimSuffix(file, ".yaml"), ".json")
	if uid := metadataOwner(file); uid != "" {
		return uid
	}
	uid, ours := strings.CutPrefix(name, SpecName(""))
	if !ours || name == file {
		return ""
	}
	return types.UID(uid)
}

// ID names the claim's nth lease to a runtime.
func ID(uid types.UID, n int) string {
	return parser.QualifiedName(params.Driver, class, fmt.Sprintf("%s-%d", uid, n))
}

// Owner is the claim whose lease a runtime knows by this name; "": it is none of ours.
func Owner(id string) types.UID {
	name, ours := strings.CutPrefix(id, params.Driver+"/"+class+"=")
	end := strings.LastIndexByte(name, '-')
	if !ours || end < 0 {
		return ""
	}
	return types.UID(name[:end])
}

// Inside is where a container finds the claim's nth lease: the path of its file, or of its socket.
func Inside(claim *ledger.Claim, n int) string {
	folders, _ := labels(claim.Pieces)
	inside := filepath.Join(Folder, string(claim.UID), folders[n])
	if claim.Pieces[n].Deliver == params.Socket {
		return filepath.Join(inside, socketName)
	}
	return inside
}

// Write describes the leases of a claim. The files lie at paths, one for each piece.
func (c *CDI) Write(claim *ledger.Claim, paths []string) error {
	spec := &specs.Spec{Kind: params.Driver + "/" + class}
	_, variables := labels(claim.Pieces)
	for n, piece := range claim.Pieces {
		value := Inside(claim, n)
		mount := &specs.Mount{HostPath: paths[n], ContainerPath: value, Options: []string{"bind", "rw", "nosuid", "nodev", "noexec"}}
		variable := "PREZERO_LEASE"
		if piece.Deliver == params.Socket {
			// The directory, not the socket: a driver that starts anew puts another one there. Only the driver writes to it;
			// who may write to a socket may connect all the same.
			mount.HostPath, mount.ContainerPath = filepath.Dir(paths[n]), filepath.Dir(value)
			mount.Options = []string{"bind", "ro", "nosuid", "nodev", "noexec"}
			variable = "PREZERO_SOCKET"
		}
		// A container may have several claims, each of which has a request of that name.
		env := []string{variable + "_" + variables[n] + "=" + value, variable + "_" + name(claim.Known) + "__" + variables[n] + "=" + value}
		if n == first(claim.Pieces, piece.Deliver) {
			env = append(env, variable+"="+value)
		}
		if piece.Deliver == params.File {
			env = append(env, fmt.Sprintf("PREZERO_BYTES_%s=%d", variables[n], piece.Bytes))
		}
		spec.Devices = append(spec.Devices, specs.Device{Name: fmt.Sprintf("%s-%d", claim.UID, n),
			ContainerEdits: specs.ContainerEdits{Env: env, Mounts: []*specs.Mount{mount}}})
	}
	version, err := specs.MinimumRequiredVersion(spec)
	if err != nil {
		return err
	}
	spec.Version = version
	return c.cache.WriteSpec(spec, SpecName(claim.UID))
}

// Remove forgets a claim.
func (c *CDI) Remove(uid types.UID) error { return c.cache.RemoveSpec(SpecName(uid)) }

// Dir is where the files lie.
func (c *CDI) Dir() string { return c.cache.GetSpecDirectories()[0] }

// first lease of a claim that is delivered so.
func first(pieces []ledger.Piece, deliver params.Deliver) int {
	for n, piece := range pieces {
		if piece.Deliver == deliver {
			return n
		}
	}
	return -1
}

// labels tell the leases of a claim apart, as folders and as variables: by the name of the request, and by a number
// where another lease has that already.
func labels(pieces []ledger.Piece) (folders, variables []string) {
	var requests []string
	for _, piece := range pieces {
		requests = append(requests, strings.ReplaceAll(piece.Request, "/", "-"))
	}
	folders = apart(requests, "-")
	for n, folder := range folders {
		requests[n] = name(folder)
	}
	return folders, apart(requests, "_")
}

// apart numbers those that are alike: the first keeps its name, and so does each that is alone.
func apart(names []string, separator string) []string {
	taken, told := map[string]bool{}, make([]string, len(names))
	for n, name := range names {
		if !taken[name] {
			taken[name], told[n] = true, name
		}
	}
	for n, name := range names {
		for number := 1; told[n] == ""; number++ {
			if other := fmt.Sprintf("%s%s%d", name, separator, number); !taken[other] {
				taken[other], told[n] = true, other
			}
		}
	}
	return told
}

// name of a request or a claim as part of a variable's, by which no other has that part: in capitals, with `_` for `-`. What
// a variable cannot have is a small letter, since names have none: `d` is a dot, and `h` the second hyphen of two, as
// two of `_` stand between claim and request.
func name(of string) string {
	return strings.NewReplacer("--", "_h", "-", "_", ".", "d").Replace(strings.ToUpper(of))
}
