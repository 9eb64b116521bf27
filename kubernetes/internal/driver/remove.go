package driver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"prezero.dev/kubernetes/internal/delivery"
	"prezero.dev/kubernetes/internal/ledger"
	"prezero.dev/kubernetes/internal/places"
)

// Remove takes away all that driver and broker left on this node, their mounts too. It removes nothing while a driver
// or a broker runs, or while a lease lies there. What it did not find is removed already.
func (o Options) Remove() error {
	for _, socket := range append(o.sockets(), o.Socket) {
		if exists(socket) && listensAsAny(socket) {
			return fmt.Errorf("%s: a process serves there; delete the DaemonSets first", socket)
		}
	}
	for _, dir := range o.Files {
		if used := inUse(dir); len(used) > 0 {
			return fmt.Errorf("%s: %d leases, such as %s; delete the pods that have claims first", dir, len(used), used[0])
		}
	}
	for _, dir := range o.Files {
		if err := unmount(dir); err != nil {
			return err
		}
	}
	gone := o.sockets()
	for _, file := range names(o.CDI) {
		if delivery.SpecOwner(file) != "" {
			gone = append(gone, filepath.Join(o.CDI, file))
		}
	}
	// The broker's lock, its state and its scraper's socket lie beside its socket.
	run := filepath.Dir(o.Socket)
	stem := strings.TrimSuffix(o.Socket, filepath.Ext(o.Socket))
	gone = append(gone, o.Socket, stem+".lock", stem+".state", stem+".new", filepath.Join(run, "metrics.sock"))
	for _, file := range gone {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.RemoveAll(o.Data); err != nil {
		return err
	}
	// A directory that has something else in it, or is a mount of this container, stays.
	_ = os.Remove(run)
	return nil
}

// listensAsAny tells whether a process takes connections at a socket of the kubelet's kind, or of the broker's.
func listensAsAny(socket string) bool {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	switch err := unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); {
	case errors.Is(err, unix.EPROTOTYPE):
		return listens(socket)
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
		return false
	}
	return true
}

// inUse are the leases in a directory, and all else that is no remainder of one.
func inUse(dir string) []string {
	var used []string
	mounted := map[string]bool{}
	for _, lease := range places.Mounted(dir) {
		mounted[lease.Name] = true
		if !lease.GivenBack {
			used = append(used, lease.Name)
		}
	}
	for _, name := range names(dir) {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || mounted[name] {
			continue
		}
		// A directory without a lease is what a mount that went away leaves.
		if !info.IsDir() || exists(ledger.File(dir, name)) {
			used = append(used, name)
		}
	}
	return used
}

// unmount a directory of leases with what is left of them, and remove it.
func unmount(dir string) error {
	for _, lease := range places.Mounted(dir) {
		at := filepath.Join(dir, lease.Name)
		if err := unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("umount %s: %w", at, err)
		}
	}
	// As many times as something is mounted there: each installation found the mount of the one before.
	for {
		err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			break
		}
		if err != nil {
			return fmt.Errorf("umount %s: %w", dir, err)
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
