// Package delivery brings parked leases into containers: as a file that CDI mounts, or over a socket.
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

// Write describes the leases of a claim. The files lie at paths, one for each piece.
func (c *CDI) Write(claim *ledger.Claim, paths []string) error {
	spec := &specs.Spec{Kind: params.Driver + "/" + class}
	for n, piece := range claim.Pieces {
		label := label(claim.Pieces, n)
		inside := filepath.Join(Folder, string(claim.UID), label)
		source, variable, value := paths[n], "PREZERO_LEASE", inside
		if piece.Deliver == params.Socket {
			// The directory, not the socket: a driver that starts anew binds another one in it.
			source, variable, value = filepath.Dir(paths[n]), "PREZERO_SOCKET", filepath.Join(inside, filepath.Base(paths[n]))
		}
		env := []string{variable + "_" + name(label) + "=" + value}
		if n == first(claim.Pieces, piece.Deliver) {
			env = append(env, variable+"="+value)
		}
		if piece.Deliver == params.File {
			env = append(env, fmt.Sprintf("PREZERO_LEASE_BYTES_%s=%d", name(label), piece.Bytes))
		}
		spec.Devices = append(spec.Devices, specs.Device{
			Name: fmt.Sprintf("%s-%d", claim.UID, n),
			ContainerEdits: specs.ContainerEdits{
				Env:    env,
				Mounts: []*specs.Mount{{HostPath: source, ContainerPath: inside, Options: []string{"bind", "rw", "nosuid", "nodev"}}},
			},
		})
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

// label tells the leases of a claim apart: the name of the request, and a number where that has several.
func label(pieces []ledger.Piece, n int) string {
	label, same := strings.ReplaceAll(pieces[n].Request, "/", "-"), 0
	for _, piece := range pieces[:n] {
		if piece.Request == pieces[n].Request {
			same++
		}
	}
	if same > 0 {
		return fmt.Sprintf("%s-%d", label, same)
	}
	return label
}

// name of a label as part of a variable's.
func name(request string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, request)
}
