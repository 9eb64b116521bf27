package rig

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"prezero.dev/kubernetes/internal/broker"
)

// Fake answers each question as it is told to.
type Fake struct {
	Socket string
	mutex  sync.Mutex
	answer func(broker.Question) (frame []byte, file *os.File)
	asked  []broker.Question
}

// NewFake listens until the test ends.
func NewFake(t testing.TB, answer func(broker.Question) ([]byte, *os.File)) *Fake {
	fake := &Fake{Socket: filepath.Join(t.TempDir(), "prezerod.sock"), answer: answer}
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: fake.Socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			go fake.serve(client)
		}
	}()
	return fake
}

func (f *Fake) serve(client *net.UnixConn) {
	defer client.Close()
	frame := make([]byte, 256)
	for {
		n, err := client.Read(frame)
		if err != nil || n == 0 {
			return
		}
		question, err := broker.DecodeQuestion(frame[:n])
		if err != nil {
			return
		}
		f.mutex.Lock()
		f.asked = append(f.asked, question)
		answer, file := f.answer(question)
		f.mutex.Unlock()
		if answer == nil {
			continue
		}
		var rights []byte
		if file != nil {
			rights = unix.UnixRights(int(file.Fd()))
		}
		_, _, _ = client.WriteMsgUnix(answer, rights, nil)
	}
}

// Asked is all that was asked.
func (f *Fake) Asked() []broker.Question {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return append([]broker.Question(nil), f.asked...)
}

// Broker is a real prezerod, with files in a place of its own.
type Broker struct {
	t       testing.TB
	program string
	config  string
	Socket  string
	// Files is the directory of its tenant's leases.
	Files   string
	process *exec.Cmd
}

// Prezerod finds the program: $PREZEROD, or what `make build` made. Without one the test is skipped.
func Prezerod(t testing.TB) string {
	t.Helper()
	program := os.Getenv("PREZEROD")
	if program == "" {
		program, _ = filepath.Abs("../../../target/release/prezerod")
	}
	if _, err := os.Stat(program); err != nil {
		t.Skipf("skipped: no prezerod (%v); run `make build`, or set PREZEROD", err)
	}
	return program
}

// Mount has a file system of its own for the test.
func Mount(t testing.TB, dir, kind, options string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(kind, dir, kind, unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		t.Skipf("skipped: mounting a %s: %v (needs root)", kind, err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

// NewBroker starts one whose leases are files of a tmpfs of this size. What is more stands in the configuration.
func NewBroker(t testing.TB, size, more string) *Broker {
	t.Helper()
	program := Prezerod(t)
	if setting, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/shmem_enabled"); err != nil || strings.Contains(string(setting), "[deny]") {
		t.Skip("skipped: this kernel makes no transparent huge pages of shared memory")
	}
	dir := t.TempDir()
	files := filepath.Join(dir, "2M")
	Mount(t, files, "tmpfs", "mode=0700,size="+size)
	return startBroker(t, program, dir, files, more)
}

// NewPoolBroker starts one whose leases are files of a hugetlbfs, with so many pages of 2 MiB reserved for it.
// What is more stands in the configuration.
func NewPoolBroker(t testing.TB, pages int, more string) *Broker {
	t.Helper()
	const pool = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
	program := Prezerod(t)
	before, err := os.ReadFile(pool)
	if err != nil {
		t.Skipf("skipped: %v", err)
	}
	had, _ := strconv.Atoi(strings.TrimSpace(string(before)))
	t.Cleanup(func() { _ = os.WriteFile(pool, before, 0o644) })
	all := strconv.Itoa(had + pages)
	if err := os.WriteFile(pool, []byte(all), 0o644); err != nil {
		t.Skipf("skipped: no pages can be reserved: %v", err)
	}
	if now, _ := os.ReadFile(pool); strings.TrimSpace(string(now)) != all {
		t.Skip("skipped: the kernel finds too few huge pages")
	}
	dir := t.TempDir()
	files := filepath.Join(dir, "2M")
	Mount(t, files, "hugetlbfs", "pagesize=2M,mode=0700")
	return startBroker(t, program, dir, files, more)
}

// FreePages of 2 MiB are free in the pool.
func FreePages(t testing.TB) int {
	t.Helper()
	text, err := os.ReadFile("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return number
}

func startBroker(t testing.TB, program, dir, files, more string) *Broker {
	b := &Broker{t: t, program: program, config: filepath.Join(dir, "prezerod.toml"), Socket: filepath.Join(dir, "prezerod.sock"), Files: files}
	b.Configure(more)
	b.Start()
	t.Cleanup(b.Kill)
	return b
}

// Configure writes another configuration, for the next start.
func (b *Broker) Configure(more string) {
	text := more + "\n[[tenant]]\nname = \"kubernetes\"\nusers = [0]\nfiles = [\"" + b.Files + "\"]\n"
	if err := os.WriteFile(b.config, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// Start it, or start it again.
func (b *Broker) Start() {
	b.t.Helper()
	b.process = exec.Command(b.program, "--config", b.config, "--socket", b.Socket)
	b.process.Stderr = NewLog(b.t, "prezerod")
	if err := b.process.Start(); err != nil {
		b.t.Fatal(err)
	}
	Until(b.t, "the broker answers", func() bool {
		conn, err := broker.Dial(context.Background(), b.Socket)
		if err != nil {
			return false
		}
		defer conn.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err = conn.Available(ctx, broker.Huge, broker.AnyNode)
		return err == nil
	})
}

// Kill it, as the kernel would.
func (b *Broker) Kill() {
	if b.process != nil {
		_ = b.process.Process.Kill()
		_ = b.process.Wait()
		b.process = nil
	}
}

// Stop has it stopped until Go: it is there and says nothing. It hears of it when it has a CPU.
func (b *Broker) Stop() {
	_ = b.process.Process.Signal(unix.SIGSTOP)
	Until(b.t, "the broker stops", func() bool {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(b.process.Process.Pid) + "/stat")
		return err != nil || strings.Contains(string(stat), ") T ")
	})
}

// Go on.
func (b *Broker) Go() { _ = b.process.Process.Signal(unix.SIGCONT) }

// Used bytes of its file system, and of those of its leases.
func (b *Broker) Used() uint64 {
	used := uint64(0)
	for _, name := range append(b.names(), "") {
		var stat unix.Statfs_t
		if err := unix.Statfs(filepath.Join(b.Files, name), &stat); err == nil && (name == "" || b.isMount(name)) {
			used += (stat.Blocks - stat.Bfree) * uint64(stat.Bsize)
		}
	}
	return used
}

// isMount tells whether a file system of its own lies there.
func (b *Broker) isMount(name string) bool {
	var own, other unix.Stat_t
	return unix.Stat(b.Files, &own) == nil && unix.Lstat(filepath.Join(b.Files, name), &other) == nil && own.Dev != other.Dev
}

// Names of the leases in it: what was given back is none.
func (b *Broker) Names() []string {
	return slices.DeleteFunc(b.names(), func(name string) bool {
		_, err := os.Lstat(filepath.Join(b.Files, name, "lease"))
		return err != nil
	})
}

func (b *Broker) names() []string {
	entries, err := os.ReadDir(b.Files)
	if err != nil {
		b.t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// Ready bytes in its stock.
func (b *Broker) Ready() uint64 {
	conn, err := broker.Dial(context.Background(), b.Socket)
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Close()
	stock, err := conn.Available(context.Background(), broker.Huge, broker.AnyNode)
	if err != nil {
		b.t.Fatal(err)
	}
	return stock.Ready
}
