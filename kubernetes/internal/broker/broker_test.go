package broker_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"prezero.dev/kubernetes/internal/broker"
	"prezero.dev/kubernetes/internal/rig"
)

const mib = 1 << 20

func dial(t *testing.T, socket string) *broker.Conn {
	t.Helper()
	conn, err := broker.Dial(context.Background(), socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func memfd(t *testing.T, bytes int64, seal bool) (*os.File, uint64) {
	t.Helper()
	fd, err := unix.MemfdCreate("fake", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "fake")
	t.Cleanup(func() { _ = file.Close() })
	if err := file.Truncate(bytes); err != nil {
		t.Fatal(err)
	}
	if seal {
		if _, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL); err != nil {
			t.Fatal(err)
		}
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		t.Fatal(err)
	}
	return file, stat.Ino
}

// The bytes that PROTOCOL.md gives as an example are what a client sends.
func TestTheDocumentShowsTheFramesAsTheyAre(t *testing.T) {
	document, err := os.ReadFile("../../../crates/prezerod/PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(document), "\n") {
		if !strings.HasPrefix(line, "    50 5a ") {
			continue
		}
		frame, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(line), " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		question, err := broker.DecodeQuestion(frame)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		switch question.Kind {
		case broker.AskLease:
			want := broker.Want{Bytes: 1 << 30, Page: broker.Huge, Node: broker.AnyNode}
			if question.Tag != 7 || question.Want != want || question.Ms != 500 {
				t.Errorf("%s: %+v", line, question)
			}
		case broker.AskAvailable:
			if question.Tag != 8 || question.Want.Page != broker.Huge || question.Want.Node != 0 {
				t.Errorf("%s: %+v", line, question)
			}
		default:
			t.Errorf("%s: %+v", line, question)
		}
	}
}

func TestALeaseIsCheckedAgainstWhatWasGranted(t *testing.T) {
	sealed, inode := memfd(t, 2*mib, true)
	open, openInode := memfd(t, 2*mib, false)
	good := broker.Granted{Number: 3, Bytes: 2 * mib, Page: broker.Huge, Backing: broker.Thp, Inode: inode, Age: time.Second}
	for name, c := range map[string]struct {
		change func(*broker.Granted)
		file   *os.File
		wrong  string
	}{
		"as granted":   {func(*broker.Granted) {}, sealed, ""},
		"no file":      {func(*broker.Granted) {}, nil, "no descriptor"},
		"another size": {func(g *broker.Granted) { g.Bytes *= 2 }, sealed, "another file"},
		"another file": {func(g *broker.Granted) { g.Inode++ }, sealed, "another file"},
		"unsealed":     {func(g *broker.Granted) { g.Inode = openInode }, open, "not sealed"},
		"a tmpfs":      {func(g *broker.Granted) { g.Inode, g.Backing = openInode, broker.Tmpfs }, open, ""},
	} {
		t.Run(name, func(t *testing.T) {
			granted := good
			c.change(&granted)
			fake := rig.NewFake(t, func(q broker.Question) ([]byte, *os.File) { return granted.Encode(q.Tag), c.file })
			lease, err := dial(t, fake.Socket).Lease(context.Background(), broker.Want{Bytes: 2 * mib, Page: broker.Huge}, 0)
			if c.wrong == "" {
				if err != nil || lease.Granted != granted {
					t.Fatalf("%v, %+v", err, lease)
				}
				_ = lease.File.Close()
			} else if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Fatalf("%v", err)
			}
		})
	}
}

func TestRefusalsAreErrorsThatTellWhy(t *testing.T) {
	var answer func(uint32) []byte
	fake := rig.NewFake(t, func(q broker.Question) ([]byte, *os.File) { return answer(q.Tag), nil })
	conn := dial(t, fake.Socket)
	ask := func() error {
		_, err := conn.LeaseNamed(context.Background(), "a", broker.Want{Bytes: 2 * mib, Page: broker.Huge}, time.Second)
		return err
	}
	answer = (&broker.Refused{Reason: broker.Quota, Text: "raise its quota"}).Encode
	var refused *broker.Refused
	if err := ask(); !errors.As(err, &refused) || refused.Reason != broker.Quota || !strings.Contains(err.Error(), "raise its quota") {
		t.Fatal(err)
	}
	answer = (&broker.NotNow{After: 1500 * time.Millisecond, Known: true, Reason: broker.Empty, Text: "none ready"}).Encode
	var notNow *broker.NotNow
	if err := ask(); !errors.As(err, &notNow) || notNow.After != 1500*time.Millisecond || !strings.Contains(err.Error(), "about 1.5 s") {
		t.Fatal(err)
	}
	answer = (&broker.NotNow{Reason: broker.Pressure, Text: "memory is short"}).Encode
	if err := ask(); !errors.As(err, &notNow) || notNow.Known || strings.Contains(err.Error(), "about") {
		t.Fatal(err)
	}
	answer = func(tag uint32) []byte { return []byte{'P', 'Z', 1, 137, byte(tag), 0, 0, 0, 's', 'h', 'o', 'r', 't'} }
	if err := ask(); err == nil {
		t.Fatal("an answer that is cut short")
	}
}

func TestAQuestionEndsWithItsContextThoughTheBrokerSaysNothing(t *testing.T) {
	fake := rig.NewFake(t, func(broker.Question) ([]byte, *os.File) { return nil, nil })
	conn := dial(t, fake.Socket)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := conn.Available(ctx, broker.Huge, 0)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestWithoutABrokerTheErrorSaysWhatToLookAt(t *testing.T) {
	_, err := broker.Dial(context.Background(), filepath.Join(t.TempDir(), "none"))
	if err == nil || !strings.Contains(err.Error(), "does prezerod run?") {
		t.Fatal(err)
	}
}

func TestABrokerWhoseQueueIsFullIsWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "full")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	dial(t, path)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := broker.Dial(ctx, path); err == nil {
		t.Fatal("a queue of one took two: the test shows nothing")
	}
	go func() {
		time.Sleep(20 * time.Millisecond)
		for range 2 {
			_, _, _ = unix.Accept(fd)
		}
		_ = unix.Close(fd)
	}()
	dial(t, path)
}

func FuzzAnswers(f *testing.F) {
	f.Add(broker.Granted{Bytes: 7}.Encode(1))
	f.Add(broker.Named{Path: "/a"}.Encode(1))
	f.Add((&broker.NotNow{}).Encode(1))
	f.Fuzz(func(t *testing.T, frame []byte) {
		fake := rig.NewFake(t, func(broker.Question) ([]byte, *os.File) { return frame, nil })
		conn := dial(t, fake.Socket)
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		_, _ = conn.LeaseNamed(ctx, "a", broker.Want{}, 0)
		_, _ = broker.DecodeQuestion(frame)
	})
}

func TestARealBrokerLeasesDescriptors(t *testing.T) {
	b := rig.NewBroker(t, "64M", "[[stock]]\nsize = \"4M\"\nkeep = 1\n[[tenant]]\nname = \"descriptors\"\nusers = [0]\n")
	conn, ctx := dial(t, b.Socket), context.Background()
	want := broker.Want{Bytes: 4 * mib, Page: broker.Huge, Node: broker.AnyNode}
	lease, err := conn.Lease(ctx, want, rig.Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer lease.File.Close()
	memory, err := unix.Mmap(int(lease.File.Fd()), 0, 4*mib, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	for at, b := range memory {
		if b != 0 {
			t.Fatalf("byte %d is %d", at, b)
		}
	}
	_ = unix.Munmap(memory)

	rig.Until(t, "the stock is ready", func() bool {
		stock, err := conn.Available(ctx, broker.Huge, broker.AnyNode)
		if err != nil {
			t.Fatal(err)
		}
		return stock.Ready >= 4*mib && stock.QuotaLeft == broker.NoBound
	})
	text, err := conn.Report(ctx, broker.Stock)
	var report struct{ Leased []struct{ Bytes uint64 } }
	if err != nil || json.Unmarshal([]byte(text), &report) != nil || len(report.Leased) == 0 {
		t.Fatalf("%v: %s", err, text)
	}
	if text, err := conn.Report(ctx, broker.Metrics); err != nil || !strings.Contains(text, "prezerod_lease_hits_total") {
		t.Fatalf("%v: %s", err, text)
	}
}

func TestARealBrokerParksOneLeaseUnderAName(t *testing.T) {
	b := rig.NewBroker(t, "64M", "")
	want := broker.Want{Bytes: 4 * mib, Page: broker.Huge, Node: broker.AnyNode}
	var all sync.WaitGroup
	named := make([]broker.Named, 8)
	for n := range named {
		conn := dial(t, b.Socket)
		all.Go(func() {
			var err error
			if named[n], err = conn.LeaseNamed(context.Background(), "claim.0", want, rig.Patience); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	fresh := 0
	for _, one := range named {
		if !one.Found {
			fresh++
		}
		if one.Inode != named[0].Inode || one.Bytes != 4*mib || one.Path != filepath.Join(b.Files, "claim.0", "lease") {
			t.Errorf("%+v", one)
		}
	}
	if fresh != 1 {
		t.Errorf("%d of %d were new", fresh, len(named))
	}

	b.Kill()
	b.Start()
	again, err := dial(t, b.Socket).LeaseNamed(context.Background(), "claim.0", want, 0)
	if err != nil || !again.Found || again.Inode != named[0].Inode {
		t.Fatalf("%v, %+v", err, again)
	}
	// A name that is a path is no frame.
	if _, err := dial(t, b.Socket).LeaseNamed(context.Background(), "../claim", want, 0); err == nil {
		t.Fatal("a path was named")
	}
}

// A test in Rust starts the broker of another user, and looks at what each client says.
func TestTheBrokerThatAnotherTestStarted(t *testing.T) {
	socket := os.Getenv("PREZERO_SOCKET")
	if socket == "" {
		socket = broker.System
	}
	conn, err := broker.Dial(context.Background(), socket)
	if err == nil {
		_, err = conn.Available(context.Background(), 2<<20, -1)
	}
	t.Log(err)
}
