// Package ledger keeps on disk which claims have leases here, so that a driver that starts anew knows.
//
// A record is written before its first lease is named, and removed after its last one is given back. So each lease in
// a place has a record, and a record without leases is a claim that is about to be prepared or was just given back.
// A record that cannot be read counts as lost. The claim itself says what it was, and a lease's name of which allocation.
package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"prezero.dev/kubernetes/internal/params"
)

// Piece is one lease of a claim.
type Piece struct {
	Request string         `json:"request"`
	Pool    string         `json:"pool"`
	Device  string         `json:"device"`
	ShareID *types.UID     `json:"shareID,omitempty"`
	Bytes   uint64         `json:"bytes"`
	Page    uint64         `json:"page"`
	Node    int            `json:"node"`
	Deliver params.Deliver `json:"deliver"`
	Mode    uint32         `json:"mode"`
	User    int64          `json:"user"`
	Group   int64          `json:"group"`
	// Label is the SELinux label of the file; "": none.
	Label string `json:"label,omitempty"`
}

// Claim is what was promised to one claim.
type Claim struct {
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Pieces    []Piece   `json:"pieces"`
	// Known is the name by which the pod's containers know the claim.
	Known string `json:"known,omitempty"`
	// Allocated is when the scheduler allocated the claim, where the API server tells; "": it does not.
	Allocated string `json:"allocated,omitempty"`
	// Key is the allocation, as the leases' names tell it; "": they do not, a driver of before made them.
	Key string `json:"key,omitempty"`
	// Prepared: every lease is named and described to the runtime.
	Prepared bool `json:"prepared"`
}

// Leases of claims have names that begin so; what else lies in a place is somebody else's.
const prefix = "claim-"

// Lease is the name of the nth one in its place.
func (c *Claim) Lease(n int) string {
	name := fmt.Sprintf("%s%s.%d", prefix, c.UID, n)
	if c.Key != "" {
		name += "." + c.Key
	}
	return name
}

// Allocation in short: claims that differ in it have nothing of each other's.
func (c *Claim) Allocation() string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%q", c.Allocated)
	for _, piece := range c.Pieces {
		fmt.Fprintf(sum, "%q %q %q %d %q\n", piece.Request, piece.Pool, piece.Device, piece.Bytes, ptr.Deref(piece.ShareID, ""))
	}
	return hex.EncodeToString(sum.Sum(nil)[:6])
}

// File of a lease: the broker mounts a file system of its name, with the lease as its one file.
func File(place, name string) string { return filepath.Join(place, name, "lease") }

var leaseName = regexp.MustCompile(`^` + prefix + `([0-9a-zA-Z-]{1,50})\.[0-9]{1,4}(\.[0-9a-f]{12})?$`)

// Owner is the claim whose lease has this name; "": it is none of ours.
func Owner(name string) types.UID {
	if match := leaseName.FindStringSubmatch(name); match != nil {
		return types.UID(match[1])
	}
	return ""
}

// Ledger is the directory of records.
type Ledger struct{ dir string }

// Open makes the directory.
func Open(dir string) (*Ledger, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	return &Ledger{dir}, nil
}

// Look reads all records of a directory, and makes nothing. What is wrong with some is told beside the others.
func Look(dir string) (claims []*Claim, broken []error, err error) {
	ledger := &Ledger{dir}
	uids, err := ledger.UIDs()
	if err != nil {
		return nil, nil, err
	}
	for _, uid := range uids {
		claim, err := ledger.Get(uid)
		if err != nil {
			broken = append(broken, err)
		} else if claim != nil {
			claims = append(claims, claim)
		}
	}
	return claims, broken, nil
}

// ErrUnreadable is a record that is none: a machine that lost its power leaves such.
var ErrUnreadable = errors.New("no record")

// Dir is the claim's own directory, for its sockets.
func (l *Ledger) Dir(uid types.UID) string { return filepath.Join(l.dir, string(uid)) }

// Get reads a record; nil: there is none.
func (l *Ledger) Get(uid types.UID) (*Claim, error) {
	if !Valid(uid) {
		return nil, fmt.Errorf("claim UID %q is no name of a file", uid)
	}
	text, err := os.ReadFile(filepath.Join(l.Dir(uid), "claim.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	claim := &Claim{}
	if err := json.Unmarshal(text, claim); err != nil {
		return nil, fmt.Errorf("%s/claim.json: %w: %w", l.Dir(uid), ErrUnreadable, err)
	}
	if claim.UID != uid || len(claim.Pieces) == 0 {
		return nil, fmt.Errorf("%s/claim.json: %w of this claim", l.Dir(uid), ErrUnreadable)
	}
	return claim, nil
}

// Put writes a record, whole or not at all. It outlives the process, and like the leases no restart of the machine.
func (l *Ledger) Put(claim *Claim) error {
	if !Valid(claim.UID) {
		return fmt.Errorf("claim UID %q is no name of a file", claim.UID)
	}
	text, err := json.MarshalIndent(claim, "", "  ")
	if err != nil {
		return err
	}
	dir := l.Dir(claim.UID)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	fresh := filepath.Join(dir, ".claim.json")
	if err := os.WriteFile(fresh, text, 0o640); err != nil {
		return err
	}
	return os.Rename(fresh, filepath.Join(dir, "claim.json"))
}

// Remove forgets a claim; the record goes last.
func (l *Ledger) Remove(uid types.UID) error {
	if !Valid(uid) {
		return fmt.Errorf("claim UID %q is no name of a file", uid)
	}
	entries, err := os.ReadDir(l.Dir(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Name() != "claim.json" {
			if err := os.RemoveAll(filepath.Join(l.Dir(uid), entry.Name())); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(l.Dir(uid))
}

// UIDs are all claims with a directory here, in order.
func (l *Ledger) UIDs() ([]types.UID, error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, err
	}
	var uids []types.UID
	for _, entry := range entries {
		if entry.IsDir() && Valid(types.UID(entry.Name())) {
			uids = append(uids, types.UID(entry.Name()))
		}
	}
	slices.Sort(uids)
	return uids, nil
}

// Valid tells whether a claim may have leases here: its UID is part of their names.
func Valid(uid types.UID) bool {
	return Owner((&Claim{UID: uid}).Lease(0)) == uid
}
