package rig

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Guest is a machine of QEMU's emulator, for tests that change all of a machine.
type Guest struct {
	t testing.TB
	// archive is its first file system, as the kernel unpacks it.
	archive bytes.Buffer
	has     map[string]bool
	kernel  string
}

// NewGuest has busybox and nothing else. $KERNEL is a kernel for it.
func NewGuest(t testing.TB) *Guest {
	t.Helper()
	for _, program := range []string{"qemu-system-x86_64", "busybox"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("skipped: no %s; apt-get install qemu-system-x86 busybox-static", program)
		}
	}
	g := &Guest{t: t, has: map[string]bool{}, kernel: os.Getenv("KERNEL")}
	if _, err := os.Stat(g.kernel); g.kernel == "" || err != nil {
		t.Skip("skipped: no kernel; `make -C kubernetes guest` has one, or set KERNEL to a vmlinuz of 6.1 or later")
	}
	path, _ := exec.LookPath("busybox")
	g.Add("/bin/busybox", path)
	return g
}

// Add a program under this name, and the libraries that it needs.
func (g *Guest) Add(name, program string) {
	g.t.Helper()
	text, err := os.ReadFile(program)
	if err != nil {
		g.t.Fatal(err)
	}
	g.file(name, 0o100755, text)
	// A program without libraries is an error here.
	needs, _ := exec.Command("ldd", program).Output()
	for _, field := range strings.Fields(string(needs)) {
		if strings.HasPrefix(field, "/") && !g.has[field] {
			g.Add(field, field)
		}
	}
}

// file in the format of cpio that the kernel takes ("newc"), with the directories above it.
func (g *Guest) file(name string, mode int, text []byte) {
	if g.has[name] {
		return
	}
	g.has[name] = true
	if dir := filepath.Dir(name); dir != "/" && dir != "." {
		g.file(dir, 0o040755, nil)
	}
	name = strings.TrimPrefix(name, "/")
	fields := []int{len(g.has), mode, 0, 0, 1, 0, len(text), 0, 0, 0, 0, len(name) + 1, 0}
	g.archive.WriteString("070701")
	for _, field := range fields {
		fmt.Fprintf(&g.archive, "%08X", field)
	}
	g.archive.WriteString(name + "\x00")
	g.pad()
	g.archive.Write(text)
	g.pad()
}

func (g *Guest) pad() { g.archive.Write(make([]byte, (4-g.archive.Len()%4)%4)) }

// Run a script in it, with file systems mounted and a loopback interface; what the guest says comes back.
func (g *Guest) Run(script string) string {
	g.t.Helper()
	begin := "#!/bin/busybox sh\nexport PATH=/bin HOME=/tmp\n/bin/busybox --install -s /bin\nmkdir -p /proc /sys /dev /tmp\n" +
		"mount -t proc proc /proc\nmount -t sysfs sysfs /sys\nmount -t devtmpfs devtmpfs /dev\nmount -t tmpfs tmpfs /tmp\nip link set lo up\n"
	g.file("/init", 0o100755, []byte(begin+script+"\npoweroff -f\n"))
	g.file("TRAILER!!!", 0, nil)
	initrd := filepath.Join(g.t.TempDir(), "initrd")
	if err := os.WriteFile(initrd, g.archive.Bytes(), 0o644); err != nil {
		g.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "2048", "-nographic", "-no-reboot",
		"-kernel", g.kernel, "-initrd", initrd, "-append", "console=ttyS0 quiet panic=-1").CombinedOutput()
	if err != nil {
		g.t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}
