// Command inside runs in a container: it maps the lease, looks at every byte, writes to it, and tells what it found.
// `inside wait` does nothing until it is told to end, as the first container of a pod.
// `inside told` tells what it was told of its leases: variables, and files of device metadata.
// `inside harm` tries what a pod must not be able to do, and tells what it could.
// $TELL is the file that it tells; without it that is its standard output.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"k8s.io/dynamic-resource-allocation/api/metadata"

	"prezero.dev/kubernetes/internal/broker"
)

// Found is what it tells.
type Found struct {
	Bytes int
	Zero  bool
	User  int
	// Node of most pages, by /proc/self/numa_maps; "": not told.
	Node string
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "wait" {
		told := make(chan os.Signal, 1)
		signal.Notify(told, syscall.SIGTERM, syscall.SIGINT)
		<-told
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "told" {
		_ = json.NewEncoder(os.Stdout).Encode(told())
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "harm" {
		harm()
		return
	}
	found, err := look()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	out := os.Stdout
	if file := os.Getenv("TELL"); file != "" {
		if out, err = os.OpenFile(file, os.O_WRONLY, 0); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	_ = json.NewEncoder(out).Encode(found)
}

// told is variables by their name, and files by their path.
func told() map[string]string {
	all := map[string]string{}
	for _, variable := range os.Environ() {
		if name, value, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "PREZERO_") {
			all[name] = value
		}
	}
	_ = filepath.WalkDir(metadata.ContainerDir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if text, err := os.ReadFile(path); err == nil {
			all[path] = string(text)
		}
		return nil
	})
	return all
}

func look() (Found, error) {
	found := Found{User: os.Getuid(), Zero: true}
	file, err := lease()
	if err != nil {
		return found, err
	}
	info, err := file.Stat()
	if err != nil {
		return found, err
	}
	found.Bytes = int(info.Size())
	memory, err := syscall.Mmap(int(file.Fd()), 0, found.Bytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return found, fmt.Errorf("mmap: %w", err)
	}
	for _, b := range memory {
		found.Zero = found.Zero && b == 0
	}
	for at := 0; at < len(memory); at += 4096 {
		memory[at] = 0xa5
	}
	maps, _ := os.ReadFile("/proc/self/numa_maps")
	for line := range strings.Lines(string(maps)) {
		if !strings.Contains(line, "file=") || !strings.Contains(line, "dirty=") {
			continue
		}
		for _, field := range strings.Fields(line) {
			if node, _, ok := strings.Cut(field, "="); ok && len(node) > 1 && node[0] == 'N' {
				found.Node = node[1:]
			}
		}
	}
	return found, nil
}

// lease is the file that CDI mounted, or what the socket hands out.
func lease() (*os.File, error) {
	if path := os.Getenv("PREZERO_LEASE"); path != "" {
		return os.OpenFile(path, os.O_RDWR, 0)
	}
	conn, err := broker.Dial(context.Background(), os.Getenv("PREZERO_SOCKET"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	want := broker.Want{Page: broker.Huge, Node: broker.AnyNode}
	if _, err := fmt.Sscan(os.Getenv("WANT"), &want.Bytes); err != nil {
		return nil, err
	}
	got, err := conn.Lease(context.Background(), want, 0)
	if err != nil {
		return nil, err
	}
	return got.File, nil
}

// harm tells of each attempt that was no error.
func harm() {
	told := map[string]string{}
	could := func(what string, err error) {
		if err == nil {
			told[what] = "done"
		}
	}
	if path := os.Getenv("PREZERO_LEASE"); path != "" {
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		info, _ := file.Stat()
		_ = file.Truncate(4 * info.Size())
		for at := info.Size(); at < 4*info.Size(); at += 1 << 20 {
			_, err := file.WriteAt(make([]byte, 1<<20), at)
			could("grow", err)
		}
		could("fallocate", syscall.Fallocate(int(file.Fd()), 0, info.Size(), 2<<20))
	}
	if socket := os.Getenv("PREZERO_SOCKET"); socket != "" {
		dir := filepath.Dir(socket)
		could("file", os.WriteFile(filepath.Join(dir, "more"), make([]byte, 1<<20), 0o600))
		could("device", syscall.Mknod(filepath.Join(dir, "null"), syscall.S_IFCHR|0o666, 1<<8|3))
		could("link", os.Symlink("/etc/passwd", filepath.Join(dir, "link")))
		could("remove", os.Remove(socket))
		could("rename", os.Rename(socket, socket+".old"))
		could("mode", os.Chmod(socket, 0o600))
		could("owner", os.Chown(dir, 1, 1))
		could("remount", syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_BIND, ""))
		conn, err := broker.Dial(context.Background(), socket)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		_ = conn.Close()
	}
	_ = json.NewEncoder(os.Stdout).Encode(told)
}
