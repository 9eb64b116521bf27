package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/opencontainers/selinux/go-selinux"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"prezero.dev/kubernetes/internal/broker"
	"prezero.dev/kubernetes/internal/crash"
	"prezero.dev/kubernetes/internal/delivery"
	"prezero.dev/kubernetes/internal/ledger"
	"prezero.dev/kubernetes/internal/params"
	"prezero.dev/kubernetes/internal/places"
)

// PrepareResourceClaims parks the leases of these claims and describes them to the runtime.
func (d *Driver) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := make(map[types.UID]kubeletplugin.PrepareResult, len(claims))
	var mutex sync.Mutex
	var all sync.WaitGroup
	for _, claim := range claims {
		all.Go(func() {
			began := time.Now()
			devices, _, err := d.prepare(ctx, claim)
			d.metrics.prepared(time.Since(began), err)
			if err != nil {
				klog.FromContext(ctx).Info("Not prepared", "claim", klog.KObj(claim), "why", err)
				d.event(pods(claim), "PrezeroLease", fmt.Sprintf("claim %s: %v", claim.Name, err))
			}
			mutex.Lock()
			defer mutex.Unlock()
			results[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
		})
	}
	all.Wait()
	return results, nil
}

// prepare what a claim is allocated here, whoever asks first. Who asks again hears the same.
func (d *Driver) prepare(ctx context.Context, claim *resourceapi.ResourceClaim) ([]kubeletplugin.Device, *ledger.Claim, error) {
	unlock, err := d.lock(claim.UID)
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	wanted, err := d.wanted(claim)
	if err != nil {
		return nil, nil, err
	}
	record, err := d.ledger.Get(claim.UID)
	switch {
	case errors.Is(err, ledger.ErrUnreadable):
		d.failed(ctx, err, "read the record of a claim; it is made anew")
	case err != nil:
		return nil, nil, err
	case record != nil && !isSame(record, wanted):
		klog.FromContext(ctx).Info("Allocated anew: the lease of before is given back", "claim", klog.KObj(claim))
		if err := d.giveBack(claim.UID); err != nil {
			return nil, nil, err
		}
		record = nil
	}
	if record == nil {
		record = wanted
		// A record comes before its leases: what lies here had one that was lost. Of this allocation it is the pod's,
		// which may have cut it; of another one it has what another pod wrote.
		if record.Prepared, err = d.removeLeases(claim.UID, wanted); err != nil {
			return nil, nil, err
		}
		if err := d.ledger.Put(record); err != nil {
			return nil, nil, err
		}
		crash.At("recorded")
	}
	paths := make([]string, len(record.Pieces))
	for n, piece := range record.Pieces {
		if paths[n], err = d.piece(ctx, record, n, piece); err != nil {
			return nil, nil, fmt.Errorf("request %s: %w", piece.Request, err)
		}
	}
	if err := d.cdi.Write(record, paths); err != nil {
		return nil, nil, err
	}
	crash.At("described")
	if !record.Prepared {
		record.Prepared = true
		if err := d.ledger.Put(record); err != nil {
			return nil, nil, err
		}
		go d.tellLeased(context.WithoutCancel(ctx), claim, record)
	}
	crash.At("prepared")
	devices := make([]kubeletplugin.Device, len(record.Pieces))
	for n, piece := range record.Pieces {
		place, err := d.place(pageOf(piece))
		if err != nil {
			return nil, nil, err
		}
		devices[n] = kubeletplugin.Device{Requests: []string{piece.Request}, PoolName: piece.Pool, DeviceName: piece.Device,
			ShareID: piece.ShareID, CDIDeviceIDs: []string{delivery.ID(claim.UID, n)}, Metadata: delivery.Metadata(record, n, attributes(place, piece.Node))}
	}
	return devices, record, nil
}

// isSame tells whether a record is of the allocation that is wanted. What is prepared stays as it is, but for another one.
func isSame(record, wanted *ledger.Claim) bool {
	was := *wanted
	if record.Key == "" && record.Allocated == "" {
		// A driver of before did not know when.
		was.Allocated = ""
	}
	return record.Allocation() == was.Allocation()
}

// wanted reads from a claim what it is to have.
func (d *Driver) wanted(claim *resourceapi.ResourceClaim) (*ledger.Claim, error) {
	record := &ledger.Claim{UID: claim.UID, Namespace: claim.Namespace, Name: claim.Name, Known: claim.Name}
	// A claim that was made of a template has a generated name.
	if known := claim.Annotations[resourceapi.PodResourceClaimAnnotation]; known != "" {
		// Who made the claim may have written it: it names variables and a path in the container.
		if wrong := validation.IsDNS1123Label(known); len(wrong) > 0 {
			return nil, fmt.Errorf("metadata.annotations[%s]: %s", resourceapi.PodResourceClaimAnnotation, wrong[0])
		}
		record.Known = known
	}
	if claim.Status.Allocation == nil {
		return nil, errors.New("status.allocation: none; the claim is allocated by the scheduler")
	}
	if at := claim.Status.Allocation.AllocationTimestamp; at != nil {
		record.Allocated = at.UTC().Format(time.RFC3339Nano)
	}
	for n, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver != params.Driver {
			continue
		}
		field := fmt.Sprintf("status.allocation.devices.results[%d]", n)
		lease, err := params.For(claim, result.Request)
		if err != nil {
			return nil, err
		}
		if result.AdminAccess != nil && *result.AdminAccess {
			return nil, fmt.Errorf("%s.adminAccess: a lease has one user; ask without", field)
		}
		node, page, err := parseDevice(result.Device)
		if err != nil {
			return nil, fmt.Errorf("%s.device: %w", field, err)
		}
		quantity, ok := result.ConsumedCapacity[capacityKey]
		if !ok {
			quantity, ok = result.ConsumedCapacity[params.Driver+"/"+capacityKey]
		}
		if !ok {
			return nil, fmt.Errorf("%s.consumedCapacity: no size; give capacity.requests.size, and enable DRAConsumableCapacity (Kubernetes 1.36)", field)
		}
		bytes := quantity.Value()
		if bytes <= 0 || uint64(bytes)%uint64(page) != 0 {
			return nil, fmt.Errorf("%s.consumedCapacity.size: %s is no multiple of the page, %s", field, quantity.String(), page)
		}
		piece := ledger.Piece{Request: result.Request, Pool: result.Pool, Device: result.Device, ShareID: result.ShareID,
			Bytes: uint64(bytes), Page: uint64(page), Node: node, Deliver: lease.Deliver, Mode: lease.Bits(),
			User: ptr.Deref(lease.User, 0), Group: ptr.Deref(lease.Group, 0)}
		if selinux.GetEnabled() {
			// Of any container, whatever its level. That only its pod has it is the mount's doing.
			piece.Label = "system_u:object_r:container_file_t:s0"
		}
		record.Pieces = append(record.Pieces, piece)
	}
	if len(record.Pieces) == 0 {
		return nil, fmt.Errorf("status.allocation.devices.results: none of %s", params.Driver)
	}
	record.Key = record.Allocation()
	return record, nil
}

// piece parks one lease and makes it the pod's. Its path is what the runtime is told.
func (d *Driver) piece(ctx context.Context, record *ledger.Claim, n int, piece ledger.Piece) (string, error) {
	path, err := d.leaseNamed(ctx, record, n)
	if err != nil {
		return "", err
	}
	crash.At("named")
	if piece.Deliver == params.File {
		if err := os.Chown(path, int(piece.User), int(piece.Group)); err != nil {
			return "", err
		}
	}
	if err := os.Chmod(path, os.FileMode(piece.Mode)); err != nil {
		return "", err
	}
	if piece.Label != "" {
		// A hugetlbfs takes no label of a file: the one of its mount holds.
		if err := selinux.SetFileLabel(path, piece.Label); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return "", fmt.Errorf("label %s: %w", piece.Label, err)
		}
	}
	if piece.Deliver != params.Socket {
		return path, nil
	}
	if err := d.sockets.Serve(record, n, path); err != nil {
		return "", err
	}
	return d.sockets.SocketPath(record.UID, n), nil
}

// leaseNamed has the broker put a lease under the claim's name, and finds it where this driver sees it.
func (d *Driver) leaseNamed(ctx context.Context, record *ledger.Claim, n int) (string, error) {
	uid, piece := record.UID, record.Pieces[n]
	place, err := d.place(broker.Page(piece.Page))
	if err != nil {
		return "", err
	}
	name := record.Lease(n)
	path := ledger.File(place.Dir, name)
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		// The next one is zero, and nobody has taken it: the machine may have started anew.
		if err := d.sockets.Renew(uid, n); err != nil {
			return "", err
		}
		want := broker.Want{Bytes: piece.Bytes, Page: broker.Page(piece.Page), Node: int32(piece.Node)}
		if err := d.ask(ctx, name, want); err != nil {
			return "", err
		}
		info, err = os.Lstat(path)
	}
	if err != nil {
		return "", fmt.Errorf("%w; --files must be the directories that `files` of the broker's tenant names, and the same mounts", err)
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is no file: %v; remove it", path, info.Mode())
	}
	// What a pod has it may cut, as it may write to it.
	if uint64(info.Size()) != piece.Bytes && !record.Prepared {
		return "", fmt.Errorf("%s has %d bytes, the claim %d; remove the file", path, info.Size(), piece.Bytes)
	}
	return path, nil
}

// another lease in the place of the claim's nth one, which no process has any more.
func (d *Driver) another(uid types.UID, n int) error {
	unlock, err := d.lock(uid)
	if err != nil {
		return err
	}
	defer unlock()
	record, err := d.ledger.Get(uid)
	if err == nil && (record == nil || n >= len(record.Pieces)) {
		err = errors.New("the claim is given back")
	}
	if err != nil {
		return err
	}
	place, err := d.place(pageOf(record.Pieces[n]))
	if err != nil {
		return err
	}
	path := ledger.File(place.Dir, record.Lease(n))
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		// The kernel gives this lock to a process that alone has the file open, or mapped.
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK)
		_ = unix.Close(fd)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("a process has it (%w)", err)
	}
	if err := d.removeLease(path); err != nil {
		return err
	}
	_, err = d.piece(context.Background(), record, n, record.Pieces[n])
	return err
}

func (d *Driver) ask(ctx context.Context, name string, want broker.Want) error {
	// The answer takes a moment more than the wait.
	ctx, cancel := context.WithTimeout(ctx, d.Wait+2*time.Second)
	defer cancel()
	conn, err := broker.Dial(ctx, d.Socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	named, err := conn.LeaseNamed(ctx, name, want, d.Wait)
	if err == nil {
		d.metrics.named(named)
	}
	return err
}

func (d *Driver) place(page broker.Page) (places.Place, error) {
	all, err := places.All(d.Files)
	if err != nil {
		return places.Place{}, err
	}
	for _, place := range all {
		if place.Page == page {
			return place, nil
		}
	}
	return places.Place{}, fmt.Errorf("no directory of --files has pages of %s any more", page)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// pods that a claim is reserved for.
func pods(claim *resourceapi.ResourceClaim) []v1.ObjectReference {
	var pods []v1.ObjectReference
	for _, consumer := range claim.Status.ReservedFor {
		if consumer.APIGroup == "" && consumer.Resource == "pods" {
			pods = append(pods, v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: claim.Namespace, Name: consumer.Name, UID: consumer.UID})
		}
	}
	return pods
}
