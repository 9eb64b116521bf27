package delivery

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/utils/ptr"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"prezero.dev/kubernetes/internal/ledger"
	"prezero.dev/kubernetes/internal/params"
)

// Device metadata (KEP-5304): a file in the container for each request of a claim, at a path that the claim's name in the
// pod tells. The kubelet's helper writes the file and a CDI file that mounts it, and removes both with the claim.
// Here is what the files say, and how those are removed whose claim the kubelet did not name.
const (
	metadataPrefix = params.Driver + "_metadata_"
	metadataFolder = "dra-device-metadata"
	// unfinished is how a file ends that is being written, or whose writer was killed.
	unfinished = ".tmp"
)

// Metadata of the claim's nth lease: where it is in the container, and all that its device is said to be.
func Metadata(claim *ledger.Claim, n int, device map[resourceapi.QualifiedName]resourceapi.DeviceAttribute) *kubeletplugin.DeviceMetadata {
	piece := claim.Pieces[n]
	attributes := map[string]resourceapi.DeviceAttribute{
		"path":    {StringValue: ptr.To(Inside(claim, n))},
		"deliver": {StringValue: ptr.To(string(piece.Deliver))},
		"bytes":   {IntValue: ptr.To(int64(piece.Bytes))},
	}
	for name, attribute := range device {
		attributes[string(name)] = attribute
	}
	return &kubeletplugin.DeviceMetadata{Attributes: attributes}
}

// MetadataFiles has the helper write whole files, and leave when they reach a disk to the kernel: like leases they
// outlive no restart of the machine. A CDI file is kept with the claim's record, too.
func MetadataFiles(claims *ledger.Ledger) kubeletplugin.MetadataFileOperations {
	return kubeletplugin.MetadataFileOperations{WriteFile: func(name string, text []byte, mode os.FileMode) error {
		if uid := metadataOwner(filepath.Base(name)); uid != "" {
			if err := write(filepath.Join(claims.Dir(uid), filepath.Base(name)), text, mode); err != nil {
				return err
			}
		}
		return write(name, text, mode)
	}}
}

func write(name string, text []byte, mode os.FileMode) error {
	// Of a name of its own: the kubelet may ask twice at once.
	fresh, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*"+unfinished)
	if err != nil {
		return err
	}
	_, err = fresh.Write(text)
	if err = errors.Join(err, fresh.Chmod(mode), fresh.Close()); err == nil {
		err = os.Rename(fresh.Name(), name)
	}
	if err != nil {
		_ = os.Remove(fresh.Name())
	}
	return err
}

// RestoreMetadata puts the CDI files of a claim's metadata back that are gone: a container that starts again needs them.
func RestoreMetadata(claims *ledger.Ledger, cdi string, uid types.UID) error {
	kept, err := filepath.Glob(filepath.Join(claims.Dir(uid), metadataPrefix+"*.json"))
	for _, file := range kept {
		at := filepath.Join(cdi, filepath.Base(file))
		if exists(at) {
			continue
		}
		text, failed := os.ReadFile(file)
		if failed == nil {
			failed = write(at, text, 0o644)
		}
		err = errors.Join(err, failed)
	}
	return err
}

// metadataOwner is the claim whose metadata a CDI file of this name mounts; "": it is none of ours.
func metadataOwner(file string) types.UID {
	name, ours := strings.CutPrefix(strings.TrimSuffix(file, ".json"), metadataPrefix)
	uid, _, whole := strings.Cut(name, "_")
	if !ours || !whole || !strings.HasSuffix(file, ".json") {
		return ""
	}
	return types.UID(uid)
}

// RemoveMetadata of a claim, with its CDI files. The directory is named by the claim and not by its UID, and may belong
// to a later claim of that name: it goes only where a file of this claim's names it.
func RemoveMetadata(data, cdi string, uid types.UID) error {
	files, err := filepath.Glob(filepath.Join(cdi, metadataPrefix+string(uid)+"_*.json"))
	if err != nil {
		return err
	}
	left, err := filepath.Glob(filepath.Join(cdi, "."+metadataPrefix+string(uid)+"_*"+unfinished))
	if err != nil {
		return err
	}
	files = append(files, left...)
	for _, file := range files {
		if dir := metadataDir(data, file); dir != "" {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
		if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}

// metadataDir is the directory of the claim whose metadata this CDI file mounts; "": none below the plugin's.
func metadataDir(data, file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	var spec specs.Spec
	if json.Unmarshal(text, &spec) != nil {
		return ""
	}
	all := filepath.Join(data, metadataFolder)
	for _, device := range spec.Devices {
		for _, mount := range device.ContainerEdits.Mounts {
			// CLAIM/REQUEST/metadata.json
			if dir := filepath.Dir(filepath.Dir(filepath.Clean(mount.HostPath))); filepath.Dir(dir) == all {
				return dir
			}
		}
	}
	return ""
}
