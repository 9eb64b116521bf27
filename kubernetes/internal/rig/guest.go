package rig

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
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
	// nic as QEMU is told, and what is done about it before a script.
	nic, begin string
}

// NewGuest has busybox and nothing else. $KERNEL is a kernel for it.
func NewGuest(t testing.TB) *Guest {
	t.Helper()
	for _, program := range []string{"qemu-system-x86_64", "busybox"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("skipped: no %s; apt-get install qemu-system-x86 busybox-static", program)
		}
	}
	g := &Guest{t: t, has: map[string]bool{}, kernel: os.Getenv("KERNEL"), nic: "none"}
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
	g.File(name, 0o100755, text)
	// A program without libraries is an error here.
	needs, _ := exec.Command("ldd", program).Output()
	for _, field := range strings.Fields(string(needs)) {
		if strings.HasPrefix(field, "/") && !g.has[field] {
			g.Add(field, field)
		}
	}
}

// File in the format of cpio that the kernel takes ("newc"), with the directories above it.
func (g *Guest) File(name string, mode int, text []byte) {
	if g.has[name] {
		return
	}
	g.has[name] = true
	if dir := filepath.Dir(name); dir != "/" && dir != "." {
		g.File(dir, 0o040755, nil)
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

// Network has it reach the host's loopback interface at HostOf.
func (g *Guest) Network() {
	g.t.Helper()
	driver := filepath.Join(filepath.Dir(g.kernel), "e1000.ko")
	text, err := os.ReadFile(driver)
	if err != nil {
		g.t.Skipf("skipped: no network in the guest: %v; `make -C kubernetes guest` has a driver beside its kernel", err)
	}
	g.File("/e1000.ko", 0o100644, text)
	g.nic = "user,model=e1000"
	g.begin += "insmod /e1000.ko\nip addr add 10.0.2.15/24 dev eth0\nip link set eth0 up\nip route add default via " + HostOf + "\n"
}

// HostOf is the address at which a guest with a network finds the host's loopback interface.
const HostOf = "10.0.2.2"

// Machine is a guest that runs.
type Machine struct {
	process *exec.Cmd
	// Ended is closed when it does; err is then how.
	Ended chan struct{}
	err   error
	mutex sync.Mutex
	said  bytes.Buffer
}

// Write what it says.
func (m *Machine) Write(text []byte) (int, error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.said.Write(text)
}

// Said is all that it said so far.
func (m *Machine) Said() string {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.said.String()
}

// Start it with a script, with file systems mounted and a loopback interface, and this much memory. It ends with the
// script, and with the test at the latest. Its root is a tmpfs: containers cannot leave the kernel's first file system.
func (g *Guest) Start(mib int, script string) *Machine {
	g.t.Helper()
	shell := "#!/bin/busybox sh\nexport PATH=/bin HOME=/tmp\n"
	g.File("/init", 0o100755, []byte(shell+"/bin/busybox --install -s /bin\nmkdir /new\nmount -t tmpfs -o size=90% tmpfs /new\n"+
		"for each in /*; do [ $each = /new ] || cp -a $each /new/; done\nexec switch_root /new /script\n"))
	g.File("/script", 0o100755, []byte(shell+"mkdir -p /proc /sys /dev /tmp\nmount -t proc proc /proc\nmount -t sysfs sysfs /sys\n"+
		"mount -t devtmpfs devtmpfs /dev\nmount -t tmpfs tmpfs /tmp\nip link set lo up\n"+g.begin+script+"\npoweroff -f\n"))
	g.File("TRAILER!!!", 0, nil)
	initrd := filepath.Join(g.t.TempDir(), "initrd")
	if err := os.WriteFile(initrd, g.archive.Bytes(), 0o644); err != nil {
		g.t.Fatal(err)
	}
	// A starving host is late with the ticks by which the kernel checks its timer.
	m := &Machine{Ended: make(chan struct{}), process: exec.Command("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", fmt.Sprint(mib),
		"-nographic", "-no-reboot", "-nic", g.nic, "-kernel", g.kernel, "-initrd", initrd, "-append", "console=ttyS0 quiet panic=-1 no_timer_check")}
	m.process.Stdout, m.process.Stderr = m, m
	// A test that is killed cleans up nothing.
	m.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.process.Start(); err != nil {
		g.t.Fatal(err)
	}
	go func() {
		m.err = m.process.Wait()
		close(m.Ended)
	}()
	g.t.Cleanup(func() {
		_ = m.process.Process.Kill()
		<-m.Ended
	})
	return m
}

// Run a script in it; what the guest says comes back.
func (g *Guest) Run(script string) string {
	g.t.Helper()
	m := g.Start(2048, script)
	select {
	case <-m.Ended:
	case <-time.After(10 * time.Minute):
		g.t.Fatalf("it runs for 10 minutes\n%s", m.Said())
	}
	if m.err != nil {
		g.t.Fatalf("%v\n%s", m.err, m.Said())
	}
	return m.Said()
}
