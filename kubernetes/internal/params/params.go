// Package params reads what a claim says in its opaque configuration.
package params

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"

	resourceapi "k8s.io/api/resource/v1"
)

// Driver is the name of the driver, and the domain of its attributes.
const Driver = "prezero.dev"

// Deliver is how a pod gets its lease.
type Deliver string

const (
	// File: a file is mounted into the container.
	File Deliver = "file"
	// Socket: the container takes the lease over a socket, as from a broker.
	Socket Deliver = "socket"
)

// Lease is what a claim may say of one lease.
type Lease struct {
	// Deliver is the way to the container.
	Deliver Deliver `json:"deliver,omitempty"`
	// Mode is the permission bits of the file. Only containers of the claim's pods reach it, whatever it is.
	Mode string `json:"mode,omitempty"`
	// User and Group own the file; without them it is root's.
	User  *int64 `json:"user,omitempty"`
	Group *int64 `json:"group,omitempty"`
}

// Bits is the mode as a number.
func (l Lease) Bits() uint32 {
	bits, _ := strconv.ParseUint(l.Mode, 8, 32)
	return uint32(bits)
}

// For reads what holds for a request of a claim: of the class first, then of the claim, and the last one counts.
// The error names the field and the mend.
func For(claim *resourceapi.ResourceClaim, request string) (Lease, error) {
	lease := Lease{Deliver: File, Mode: "0666"}
	if claim.Status.Allocation == nil {
		return lease, nil
	}
	for _, source := range []resourceapi.AllocationConfigSource{resourceapi.AllocationConfigSourceClass, resourceapi.AllocationConfigSourceClaim} {
		for n, config := range claim.Status.Allocation.Devices.Config {
			if config.Source != source || config.Opaque == nil || config.Opaque.Driver != Driver {
				continue
			}
			if len(config.Requests) > 0 && !slices.Contains(config.Requests, request) {
				continue
			}
			field := fmt.Sprintf("config[%d].opaque.parameters", n)
			decoder := json.NewDecoder(bytes.NewReader(config.Opaque.Parameters.Raw))
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(&lease); err != nil {
				return lease, fmt.Errorf("%s: %w; give deliver, mode, user or group", field, err)
			}
			if _, err := decoder.Token(); err != io.EOF {
				return lease, fmt.Errorf("%s: more than one object; give one", field)
			}
			if err := lease.check(field); err != nil {
				return lease, err
			}
		}
	}
	return lease, nil
}

func (l Lease) check(field string) error {
	if l.Deliver != File && l.Deliver != Socket {
		return fmt.Errorf("%s.deliver: %q; give \"file\" or \"socket\"", field, l.Deliver)
	}
	if bits, err := strconv.ParseUint(l.Mode, 8, 32); err != nil || bits > 0o777 {
		return fmt.Errorf("%s.mode: %q; give permission bits, \"0660\"", field, l.Mode)
	}
	for name, id := range map[string]*int64{"user": l.User, "group": l.Group} {
		if id != nil && (*id < 0 || *id > 1<<32-2) {
			return fmt.Errorf("%s.%s: %d; give a number from 0 to 4294967294", field, name, *id)
		}
	}
	return nil
}
