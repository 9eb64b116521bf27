package delivery

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"prezero.dev/kubernetes/internal/broker"
	"prezero.dev/kubernetes/internal/ledger"
	"prezero.dev/kubernetes/internal/linger"
	"prezero.dev/kubernetes/internal/params"
)

// endless is longer than anything takes that does not wait for a client.
const endless = 2 * time.Minute

// answered has something done that must wait for no client.
func answered(t *testing.T, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(endless):
		t.Fatalf("%s: no answer in %v", what, endless)
	}
}

// claims of a socket each, with a lease of 2 MiB in an ordinary file.
func claims(t *testing.T, uids ...types.UID) (*Sockets, []*ledger.Claim, string) {
	t.Helper()
	records, err := ledger.Open(filepath.Join(t.TempDir(), "claims"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "lease")
	if err := os.WriteFile(file, make([]byte, 2<<20), 0o666); err != nil {
		t.Fatal(err)
	}
	var all []*ledger.Claim
	for _, uid := range uids {
		claim := &ledger.Claim{UID: uid, Pieces: []ledger.Piece{{Request: "ram", Deliver: params.Socket, Bytes: 2 << 20, Page: 2 << 20}}}
		if err := records.Put(claim); err != nil {
			t.Fatal(err)
		}
		all = append(all, claim)
	}
	return NewSockets(records), all, file
}

// While a socket rests it takes no client, and the kernel keeps few for it: a pod that connects without end has one
// client served in each rest.
func TestASocketRestsAfterEachClientAndFewWaitMeanwhile(t *testing.T) {
	rests, goOn := make(chan time.Duration), make(chan struct{})
	was := pause
	pause = func(each time.Duration) {
		select {
		case rests <- each:
			<-goOn
		case <-goOn:
		}
	}
	s, all, file := claims(t, "u-1")
	if err := s.Serve(all[0], 0, file); err != nil {
		t.Fatal(err)
	}
	connect := func() (int, error) {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		return fd, unix.Connect(fd, &unix.SockaddrUnix{Name: s.SocketPath("u-1", 0)})
	}
	if _, err := connect(); err != nil {
		t.Fatal(err)
	}
	if each := <-rests; each != pace {
		t.Errorf("it rests for %v", each)
	}
	waiting := 0
	for ; waiting < 10*backlog; waiting++ {
		if _, err := connect(); err != nil {
			break
		}
	}
	// The kernel lets one more wait than it was told.
	if waiting != backlog+1 {
		t.Errorf("%d clients wait, of %d", waiting, backlog+1)
	}
	select {
	case <-rests:
		t.Error("a second client was taken while the socket rested")
	default:
	}
	goOn <- struct{}{}
	if each := <-rests; each != pace {
		t.Errorf("it rests for %v", each)
	}
	close(goOn)
	s.Close("u-1")
	pause = was
}

// A pod sends descriptors that take an hour to close. Kernels before Linux 6.16 let them through.
func TestWhatAClientSendsHoldsUpItsOwnSocketAlone(t *testing.T) {
	for kernel, refuse := range map[string]func(string, string, syscall.RawConn) error{
		"this kernel": refuseRights, "one before 6.16": func(string, string, syscall.RawConn) error { return nil },
	} {
		t.Run(kernel, func(t *testing.T) {
			was := refuseRights
			refuseRights = refuse
			defer func() { refuseRights = was }()
			s, all, file := claims(t, "u-1", "u-2", "u-3")
			for _, claim := range all[:2] {
				if err := s.Serve(claim, 0, file); err != nil {
					t.Fatal(err)
				}
			}
			before := runtime.NumGoroutine()
			for range 2 * crowd {
				_ = linger.Send(t, s.SocketPath("u-1", 0))
			}
			answered(t, "the health of all", func() {
				if err := s.Sick(time.Now()); err != nil {
					t.Error(err)
				}
			})
			answered(t, "another claim's lease", func() {
				conn, err := broker.Dial(context.Background(), s.SocketPath("u-2", 0))
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				lease, err := conn.Lease(context.Background(), broker.Want{Bytes: 2 << 20, Page: broker.Huge, Node: broker.AnyNode}, 0)
				if err != nil {
					t.Error(err)
					return
				}
				_ = lease.File.Close()
			})
			answered(t, "another claim's socket", func() {
				if err := s.Serve(all[2], 0, file); err != nil {
					t.Error(err)
				}
			})
			answered(t, "a look at all sockets", s.Leave)
			answered(t, "another driver in its place", func() {
				if err := s.TakeOver(all[0], 0, file); err != nil {
					t.Error(err)
				}
			})
			answered(t, "the end of each", func() {
				for _, claim := range all {
					s.Close(claim.UID)
				}
			})
			// Two for each client that has a place, two that close a listener, and one that accepts, of each socket.
			if now := runtime.NumGoroutine(); now > before+4*(2*crowd+6) {
				t.Errorf("%d goroutines, %d before", now, before)
			}
		})
	}
}

func TestASignalEndsTheWaitForWhatLingers(t *testing.T) {
	fd := linger.Socket(t)
	answered(t, "close", func() { hurried(time.Millisecond, func() { _ = unix.Close(fd) }) })
}

// Who has the lease keeps others from opening its file, and asks again.
func TestALeaseThatCannotBeOpenedCostsNoGoroutine(t *testing.T) {
	s, all, file := claims(t, "u-1")
	if err := s.Serve(all[0], 0, file); err != nil {
		t.Fatal(err)
	}
	holder, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	if _, err := unix.FcntlInt(holder.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}
	ask := func(words string) {
		t.Helper()
		answered(t, words, func() {
			conn, err := broker.Dial(context.Background(), s.SocketPath("u-1", 0))
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			if _, err = conn.Lease(context.Background(), broker.Want{Bytes: 2 << 20, Page: broker.Huge, Node: broker.AnyNode}, 0); err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("%s: %v", words, err)
			}
		})
	}
	before := runtime.NumGoroutine()
	for range 8 * crowd {
		ask("temporarily unavailable")
	}
	if err := take(s.taken("u-1", 0)); err != nil {
		t.Error("a lease that was not sent counts as taken")
	}
	for range 8 * crowd {
		ask("taken before")
	}
	if now := runtime.NumGoroutine(); now > before+2*crowd+2 {
		t.Errorf("%d goroutines, %d before", now, before)
	}
}

// Two drivers of one directory, as while one replaces the other.
func TestOfTwoDriversOneServesASocketAndTheOtherTakesItsPlace(t *testing.T) {
	records, err := ledger.Open(filepath.Join(t.TempDir(), "claims"))
	if err != nil {
		t.Fatal(err)
	}
	claim := &ledger.Claim{UID: "u-1", Pieces: []ledger.Piece{{Request: "ram", Deliver: params.Socket, Bytes: 2 << 20, Page: 2 << 20}}}
	if err := records.Put(claim); err != nil {
		t.Fatal(err)
	}
	older, younger := NewSockets(records), NewSockets(records)
	serve := func(s *Sockets) {
		t.Helper()
		if err := s.Serve(claim, 0, "/nowhere"); err != nil {
			t.Fatal(err)
		}
	}
	takesClients := func() {
		t.Helper()
		conn, err := broker.Dial(context.Background(), older.SocketPath("u-1", 0))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
	is := func(older_, younger_ bool) {
		t.Helper()
		if older.Serves("u-1", 0) != older_ || younger.Serves("u-1", 0) != younger_ {
			t.Fatal(older.Serves("u-1", 0), younger.Serves("u-1", 0))
		}
		takesClients()
	}
	serve(older)
	is(true, false)
	// The younger one leaves alone what takes clients, until it takes over.
	serve(younger)
	is(true, false)
	if err := younger.TakeOver(claim, 0, "/nowhere"); err != nil {
		t.Fatal(err)
	}
	is(false, true)
	serve(older)
	older.Leave()
	is(false, true)
	if len(older.open) != 0 {
		t.Error("the older driver keeps a socket that nobody reaches")
	}
	// The younger one ends, and the older one is asked again.
	younger.open["u-1"][0].close()
	serve(older)
	is(true, false)
	younger.Leave()
	if len(younger.open) != 0 {
		t.Error("the younger driver keeps a socket that nobody reaches")
	}
	// One of them gives the claim back; the other hears nothing of it.
	if err := records.Remove("u-1"); err != nil {
		t.Fatal(err)
	}
	older.Leave()
	if len(older.open) != 0 {
		t.Error("a driver keeps a socket of a claim that is gone")
	}
}
