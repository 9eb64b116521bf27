package driver

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"prezero.dev/kubernetes/internal/params"
)

// Two drivers run side by side on a node while one replaces the other. The kubelet asks either, and both keep their
// records in one directory:
//
//   - a claim is locked by a byte of a file, so one of them has it at a time;
//   - one of them leads and answers the runtime, which refuses a container that two plugins change;
//   - what one of them served when it ended, the other serves at its next look.
const (
	lockFile = "lock"
	// leadFile is locked by the driver that leads.
	leadFile = "lead"
	// How often the other one looks whether that has ended.
	succession = 200 * time.Millisecond
	// An instance that starts binds its sockets before it takes connections. Younger ones are left alone.
	newborn = time.Minute
)

// lock has a claim for one goroutine of one process. The function that comes back lets it go.
func (d *Driver) lock(uid types.UID) (func(), error) {
	for {
		unlock, err := take(filepath.Join(d.Data, lockFile), place(uid), unix.F_OFD_SETLKW)
		if !errors.Is(err, unix.EINTR) {
			if err != nil {
				err = fmt.Errorf("lock claim %s: %w", uid, err)
			}
			return unlock, err
		}
	}
}

// place of a claim's byte in the file of locks.
func place(uid types.UID) int64 {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(uid))
	return int64(hash.Sum64() >> 2)
}

// take a lock on a byte of a file; it goes with the function that comes back, or with the process.
func take(file string, at int64, command int) (func(), error) {
	open, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: at, Len: 1}
	if err := unix.FcntlFlock(open.Fd(), command, &lock); err != nil {
		_ = open.Close()
		return nil, err
	}
	return func() { _ = open.Close() }, nil
}

// lead answers the runtime once no other driver of this node does.
func (d *Driver) lead(ctx context.Context) {
	for waits := false; ; {
		leave, err := take(filepath.Join(d.Data, leadFile), 0, unix.F_OFD_SETLK)
		if err == nil {
			defer leave()
			d.leads.Store(true)
			d.containers.Run(ctx, d.NRI)
			return
		}
		if !waits {
			waits = true
			klog.FromContext(ctx).Info("Another driver of this node answers the runtime until it ends", "why", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(succession):
		}
	}
}

// serveBeside serves what a driver served that has ended since, and leaves what another one serves.
func (d *Driver) serveBeside(ctx context.Context) {
	if d.Pod == "" {
		return
	}
	d.sockets.Leave()
	d.served(ctx, func(uid types.UID, n int, path string) error {
		if d.sockets.Serves(uid, n) {
			return nil
		}
		// A claim that is being prepared is served by who prepares it.
		unlock, err := take(filepath.Join(d.Data, lockFile), place(uid), unix.F_OFD_SETLK)
		if err != nil {
			return nil
		}
		defer unlock()
		record, err := d.ledger.Get(uid)
		if err != nil || record == nil || n >= len(record.Pieces) {
			return err
		}
		return d.sockets.Serve(record, n, path)
	})
}

// clearSockets removes what drivers left that were killed: the kubelet would ask there over and over.
func (d *Driver) clearSockets(ctx context.Context) {
	if d.Pod == "" {
		return
	}
	for _, socket := range d.stale() {
		klog.FromContext(ctx).Info("Socket of a driver that is gone", "path", socket)
		if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
			d.failed(ctx, err, "remove the socket of a driver that is gone")
		}
	}
}

// stale sockets of drivers of this node: those where nobody listens.
func (d *Driver) stale() []string {
	var all []string
	for _, socket := range d.Options.sockets() {
		info, err := os.Lstat(socket)
		if err == nil && time.Since(info.ModTime()) > newborn && !listens(socket) {
			all = append(all, socket)
		}
	}
	return all
}

// sockets that drivers of this node have bound for the kubelet, or had.
func (o Options) sockets() []string {
	var all []string
	for _, name := range names(o.Data) {
		if strings.HasPrefix(name, "dra") && strings.HasSuffix(name, ".sock") {
			all = append(all, filepath.Join(o.Data, name))
		}
	}
	for _, name := range names(o.Registry) {
		if strings.HasPrefix(name, params.Driver+"-") && strings.HasSuffix(name, "-reg.sock") {
			all = append(all, filepath.Join(o.Registry, name))
		}
	}
	return all
}

// listens tells whether a process takes connections at a socket.
func listens(socket string) bool {
	conn, err := net.DialTimeout("unix", socket, time.Second)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil || !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, os.ErrNotExist)
}
