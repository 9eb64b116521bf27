package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"prezero.dev/kubernetes/internal/crash"
	"prezero.dev/kubernetes/internal/delivery"
	"prezero.dev/kubernetes/internal/ledger"
	"prezero.dev/kubernetes/internal/params"
)

var getOptions = metav1.GetOptions{}

// How often what no claim has any more is looked for.
const sweepEvery = time.Hour

// UnprepareResourceClaims gives the leases of these claims back, whatever became of their preparation.
func (d *Driver) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := make(map[types.UID]error, len(claims))
	for _, claim := range claims {
		err := d.unprepare(claim.UID)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Not unprepared", "claim", claim.NamespacedName)
		}
		d.metrics.unprepared(err)
		results[claim.UID] = err
	}
	return results, nil
}

// unprepare forgets a claim.
func (d *Driver) unprepare(uid types.UID) error {
	if !ledger.Valid(uid) {
		return nil
	}
	unlock, err := d.lock(uid)
	if err != nil {
		return err
	}
	defer unlock()
	return d.giveBack(uid)
}

// giveBack what a claim has, which is locked.
func (d *Driver) giveBack(uid types.UID) error {
	if err := d.cdi.Remove(uid); err != nil {
		return err
	}
	if err := delivery.RemoveMetadata(d.Data, d.CDI, uid); err != nil {
		return err
	}
	crash.At("undescribed")
	d.sockets.Close(uid)
	if _, err := d.removeLeases(uid, nil); err != nil {
		return err
	}
	return d.ledger.Remove(uid)
}

// removeLeases of a claim, but for those of one allocation, and tells whether there are such. What hinders one leaves the others to go.
func (d *Driver) removeLeases(uid types.UID, but *ledger.Claim) (kept bool, err error) {
	for _, dir := range d.Files {
		for _, name := range names(dir) {
			switch {
			case ledger.Owner(name) != uid:
			case but != nil && strings.HasSuffix(name, "."+but.Key):
				kept = kept || exists(ledger.File(dir, name))
			default:
				err = errors.Join(err, d.removeLease(ledger.File(dir, name)))
				crash.At("given back")
			}
		}
	}
	return kept, err
}

const (
	// How often what a process keeps of a lease is tried again, and of how many leases at once.
	emptyAgain = 60
	emptyMost  = 64
)

// removeLease, with what is in it: the pod's processes have ended, and a descriptor that was passed on keeps nothing.
// A process that has such a one may keep the file from being opened (F_SETLEASE). Its name goes all the same.
func (d *Driver) removeLease(path string) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	emptied := empty(fd)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		_ = unix.Close(fd)
		return err
	}
	if emptied == nil {
		return unix.Close(fd)
	}
	go func() {
		defer unix.Close(fd)
		if d.emptying.Add(1) <= emptyMost {
			for n := 0; n < emptyAgain && emptied != nil; n++ {
				time.Sleep(time.Second)
				emptied = empty(fd)
			}
		}
		d.emptying.Add(-1)
		if emptied != nil {
			d.failed(context.Background(), emptied, "empty "+path+", which was given back and which a process has open")
		}
	}()
	return nil
}

// empty the file of a descriptor that only names it.
func empty(path int) error {
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", path), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Ftruncate(fd, 0)
}

// describe leases again whose CDI files are gone: a container that starts again needs them, and the kubelet asks no more.
func (d *Driver) describe(ctx context.Context) {
	uids, _ := d.ledger.UIDs()
	for _, uid := range uids {
		unlock, err := d.lock(uid)
		if err != nil {
			continue
		}
		// One that cannot be read is told by who serves it.
		if record, _ := d.ledger.Get(uid); record != nil && record.Prepared {
			err = delivery.RestoreMetadata(d.ledger, d.CDI, uid)
			paths := make([]string, len(record.Pieces))
			there := exists(filepath.Join(d.CDI, delivery.SpecName(uid)+".yaml"))
			for n, piece := range record.Pieces {
				place, missing := d.place(pageOf(piece))
				if paths[n] = ledger.File(place.Dir, record.Lease(n)); missing != nil || !exists(paths[n]) {
					// The machine started anew: the kubelet asks.
					there = true
				}
				if piece.Deliver == params.Socket {
					paths[n] = d.sockets.SocketPath(uid, n)
				}
			}
			if !there {
				err = errors.Join(err, d.cdi.Write(record, paths))
			}
		}
		unlock()
		if err != nil {
			d.failed(ctx, err, "describe the leases of a claim again")
		}
	}
}

// resume serves again what an earlier driver served, before the kubelet asks for anything.
func (d *Driver) resume(ctx context.Context) {
	d.describe(ctx)
	d.served(ctx, func(uid types.UID, n int, path string) error {
		unlock, err := d.lock(uid)
		if err != nil {
			return err
		}
		defer unlock()
		record, err := d.ledger.Get(uid)
		if err != nil || record == nil || n >= len(record.Pieces) {
			return err
		}
		return d.sockets.TakeOver(record, n, path)
	})
}

// served does something with each lease that a socket hands out.
func (d *Driver) served(ctx context.Context, with func(uid types.UID, n int, path string) error) {
	uids, err := d.ledger.UIDs()
	if err != nil {
		d.failed(ctx, err, "read the records of claims")
		return
	}
	for _, uid := range uids {
		record, err := d.ledger.Get(uid)
		if err != nil {
			d.failed(ctx, err, "read the record of a claim")
			continue
		}
		if record == nil || !record.Prepared {
			continue
		}
		for n, piece := range record.Pieces {
			if piece.Deliver != params.Socket {
				continue
			}
			place, err := d.place(pageOf(piece))
			if err == nil {
				err = with(uid, n, ledger.File(place.Dir, record.Lease(n)))
			}
			if err != nil {
				d.failed(ctx, err, fmt.Sprintf("serve the lease of claim %s/%s again", record.Namespace, record.Name))
			}
		}
	}
}

// sweepUntilDone gives back what no claim has any more: at the start, and now and then.
func (d *Driver) sweepUntilDone(ctx context.Context) {
	for wait := time.Second; ; {
		d.clearSockets(ctx)
		if err := d.sweep(ctx); err != nil {
			klog.FromContext(ctx).Info("Leases without a claim are looked for again", "in", wait, "why", err)
			wait = min(2*wait, time.Minute)
		} else {
			wait = sweepEvery
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// sweep compares what is here with the API server. A claim that cannot be looked up keeps what it has.
func (d *Driver) sweep(ctx context.Context) error {
	uids, err := d.ledger.UIDs()
	if err != nil {
		return err
	}
	known := map[types.UID]bool{}
	for _, uid := range uids {
		known[uid] = true
		record, err := d.ledger.Get(uid)
		if err != nil {
			// The kubelet asks for the claim again if it is still there, and gives it back if not.
			d.failed(ctx, err, "read the record of a claim")
			continue
		}
		if record != nil {
			stale, err := d.isStale(ctx, record)
			if err != nil {
				return err
			}
			if !stale {
				continue
			}
			klog.FromContext(ctx).Info("Lease of a claim that is gone", "claim", klog.KRef(record.Namespace, record.Name), "uid", uid)
		}
		if err := d.unprepare(uid); err != nil {
			return err
		}
		d.metrics.Swept.Inc()
	}
	// A record comes before what it tells of: what has none belongs to a directory of records that was lost.
	orphans := map[types.UID]bool{}
	for _, dir := range d.Files {
		for _, name := range names(dir) {
			// One that was given back is the broker's.
			if exists(ledger.File(dir, name)) {
				orphans[ledger.Owner(name)] = true
			}
		}
	}
	for _, file := range names(d.cdi.Dir()) {
		orphans[delivery.SpecOwner(file)] = true
	}
	for uid := range orphans {
		if uid == "" || known[uid] {
			continue
		}
		// It may be a claim that is being prepared since the records were read.
		if record, err := d.ledger.Get(uid); err != nil || record != nil {
			continue
		}
		klog.FromContext(ctx).Info("Lease without a record", "uid", uid)
		if err := d.unprepare(uid); err != nil {
			return err
		}
		d.metrics.Swept.Inc()
	}
	return nil
}

// isStale tells whether a claim has no use for what it has here.
func (d *Driver) isStale(ctx context.Context, record *ledger.Claim) (bool, error) {
	claim, err := d.client.ResourceV1().ResourceClaims(record.Namespace).Get(ctx, record.Name, getOptions)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, err
	case claim.UID != record.UID || claim.Status.Allocation == nil:
		return true, nil
	}
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver == params.Driver && result.Pool == d.Node {
			return false, nil
		}
	}
	return true, nil
}

// names of what is in a directory.
func names(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}
