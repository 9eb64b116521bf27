package delivery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"prezero.dev/kubernetes/internal/broker"
	"prezero.dev/kubernetes/internal/ledger"
)

const (
	// How long a client of a socket may be silent.
	patience = 10 * time.Second
	// Connections of one socket; the oldest makes way. A lease is handed out once.
	crowd = 4
	// Connections that may wait to be accepted, and how long a socket rests after each: a pod that
	// asks without end has so much of the driver's time and no more.
	backlog = 16
	pace    = 5 * time.Millisecond
	// How long a socket rests after an accept that failed, until another file is closed, and a client that was refused.
	rest = 100 * time.Millisecond
	// A socket whose accepts fail for longer is told by Sick.
	sickness = 30 * time.Second

	socketName = "prezerod.sock"
)

// Sockets answer LEASE in the broker's place, so that a pod takes its lease with any client of prezerod's.
// Each hands its lease out once: what the pod writes stays in it, and is not zero for the next one. A container that
// starts again gets another one, if no process has that of before.
//
// A socket lies in a directory of its own, which only the driver writes: a pod sees the directory, and may connect.
//
// What a pod sends may take as long to close as the pod likes, in the kernel: descriptors of TCP sockets that linger. So
// nothing of a client is read or closed under a mutex, or by a goroutine that others wait for, and a client has its place
// until it is closed. Where the kernel can (Linux 6.16), a socket takes no descriptors at all.
//
// Two drivers may serve the same claims while one replaces the other. Each records what it bound. What is recorded and
// takes clients is left alone; the driver that starts takes over.
type Sockets struct {
	ledger *ledger.Ledger
	// Another puts another lease in the place of the claim's nth one, which was taken; an error says why it stays.
	Another func(uid types.UID, n int) error
	mutex   sync.Mutex
	open    map[types.UID]map[int]*socket
}

// socket is one that listens here.
type socket struct {
	listener *net.UnixListener
	// device and inode of what was bound: another process may have replaced it.
	device, inode uint64
	// places of clients; done is closed when no more come.
	places chan struct{}
	done   chan struct{}

	mutex   sync.Mutex
	clients []*net.UnixConn
	// failing since then; zero: the last accept was good.
	failing time.Time
}

// NewSockets serves none yet.
func NewSockets(ledger *ledger.Ledger) *Sockets {
	return &Sockets{ledger: ledger, open: map[types.UID]map[int]*socket{}}
}

// SocketPath of the claim's nth lease; its directory is the container's.
func (s *Sockets) SocketPath(uid types.UID, n int) string {
	return filepath.Join(s.ledger.Dir(uid), strconv.Itoa(n), socketName)
}

// Serve hands out the claim's nth lease, which lies at path. What was bound before stays, if it still takes clients.
func (s *Sockets) Serve(claim *ledger.Claim, n int, path string) error {
	if s.Serves(claim.UID, n) || s.another(claim.UID, n) {
		return nil
	}
	return s.TakeOver(claim, n, path)
}

// Serves tells whether the claim's nth lease is handed out by this process.
func (s *Sockets) Serves(uid types.UID, n int) bool {
	s.mutex.Lock()
	own := s.open[uid][n]
	s.mutex.Unlock()
	return own != nil && own.is(s.SocketPath(uid, n))
}

// TakeOver hands out the claim's nth lease here, whoever did before.
func (s *Sockets) TakeOver(claim *ledger.Claim, n int, path string) error {
	fresh, err := bind(filepath.Dir(s.SocketPath(claim.UID, n)))
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.bound(claim.UID, n), []byte(fresh.identity()), 0o640); err != nil {
		fresh.close()
		return err
	}
	s.mutex.Lock()
	old := s.open[claim.UID][n]
	s.mutex.Unlock()
	if old != nil {
		old.close()
	}
	s.mutex.Lock()
	if s.open[claim.UID] == nil {
		s.open[claim.UID] = map[int]*socket{}
	}
	s.open[claim.UID][n] = fresh
	s.mutex.Unlock()
	uid, piece := claim.UID, claim.Pieces[n]
	give := func(client *net.UnixConn, question broker.Question) error {
		if !matches(question.Want, piece) {
			return fmt.Errorf("the claim has %d bytes in pages of %d on node %d; ask for just that", piece.Bytes, piece.Page, piece.Node)
		}
		// Before it is sent: a lease that is lost is better than one that two believe zero. And before the file is opened:
		// who has it can keep others from that (F_SETLEASE).
		err := take(s.taken(uid, n))
		// What a pod has cleared anew is a share of what its node can clear.
		wait := patience + time.Duration(piece.Bytes>>30)*time.Second
		if err != nil && s.Another != nil && time.Since(takenAt(s.taken(uid, n))) > wait {
			if why := s.Another(uid, n); why != nil {
				return fmt.Errorf("the lease was taken before, and stays: %w", why)
			}
			err = take(s.taken(uid, n))
		}
		if err != nil {
			return fmt.Errorf("the lease was taken before, and holds what was written since; ask again %v after that", wait)
		}
		return lease(client, question.Tag, piece, path, s.taken(uid, n))
	}
	go fresh.accept(func(client *net.UnixConn) { answer(client, give) })
	return nil
}

// bound is the file that records what was bound last for the claim's nth lease.
func (s *Sockets) bound(uid types.UID, n int) string {
	return filepath.Join(s.ledger.Dir(uid), fmt.Sprintf("bound.%d", n))
}

func (s *socket) identity() string { return fmt.Sprintf("%d:%d", s.device, s.inode) }

// another driver tells that it bound what lies there, and takes clients.
func (s *Sockets) another(uid types.UID, n int) bool {
	recorded, err := os.ReadFile(s.bound(uid, n))
	if err != nil {
		return false
	}
	at := s.SocketPath(uid, n)
	var stat unix.Stat_t
	if unix.Lstat(at, &stat) != nil {
		return false
	}
	there := &socket{device: stat.Dev, inode: stat.Ino}
	if there.identity() != string(recorded) || !there.is(at) {
		return false
	}
	fd, err := unix.Open(filepath.Dir(at), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	client, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d/%s", fd, socketName), Net: "unixpacket"})
	if err != nil {
		return false
	}
	_ = client.Close()
	return true
}

// Leave closes what another driver serves by now, and what belongs to a claim that another driver gave back.
func (s *Sockets) Leave() {
	s.mutex.Lock()
	all := map[types.UID][]int{}
	for uid, sockets := range s.open {
		for n := range sockets {
			all[uid] = append(all[uid], n)
		}
	}
	s.mutex.Unlock()
	for uid, numbers := range all {
		for _, n := range numbers {
			if s.Serves(uid, n) || exists(s.ledger.Dir(uid)) && !s.another(uid, n) {
				continue
			}
			s.mutex.Lock()
			if old := s.open[uid][n]; old != nil {
				old.close()
				delete(s.open[uid], n)
			}
			if len(s.open[uid]) == 0 {
				delete(s.open, uid)
			}
			s.mutex.Unlock()
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// bind a socket in a directory: made beside its place and put there whole, so nothing that lay there is followed.
func bind(dir string) (*socket, error) {
	if info, err := os.Lstat(dir); err == nil && !info.IsDir() {
		if err := os.Remove(dir); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	defer unix.Close(fd)
	// By the descriptor, which is short, too: the path of a socket is at most 107 bytes.
	inside := fmt.Sprintf("/proc/self/fd/%d/", fd)
	const fresh = ".prezerod.sock"
	for _, name := range []string{fresh, socketName} {
		// A directory gives no way to the socket that is put in its place.
		if info, err := os.Lstat(inside + name); err == nil && (name == fresh || info.IsDir()) {
			if err := os.RemoveAll(inside + name); err != nil {
				return nil, err
			}
		}
	}
	config := net.ListenConfig{Control: refuseRights}
	bound, err := config.Listen(context.Background(), "unixpacket", inside+fresh)
	if err != nil {
		return nil, err
	}
	listener := bound.(*net.UnixListener)
	listener.SetUnlinkOnClose(false)
	s := &socket{listener: listener, places: make(chan struct{}, crowd), done: make(chan struct{})}
	s.control(func(fd int) { _ = unix.Listen(fd, backlog) })
	if err := s.open(fd, fresh); err != nil {
		_ = listener.Close()
		return nil, err
	}
	if err := unix.Renameat(fd, fresh, fd, socketName); err != nil {
		_ = listener.Close()
		return nil, err
	}
	return s, nil
}

// refuseRights has a socket take no descriptors, where the kernel can. A variable for tests.
var refuseRights = func(_, _ string, socket syscall.RawConn) error {
	return socket.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 0) })
}

// pause of a socket after a client. A variable for tests.
var pause = time.Sleep

// control does something with the listener, which may be in use.
func (s *socket) control(with func(fd int)) {
	if raw, err := s.listener.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { with(int(fd)) })
	}
}

// open it to any user: the directory is bound into one pod only, whose user another namespace names.
func (s *socket) open(dir int, name string) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFSOCK || int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is no socket of this driver's", name)
	}
	s.device, s.inode = stat.Dev, stat.Ino
	return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), 0o666)
}

// is tells whether what lies at this path is this socket, and nothing else.
func (s *socket) is(path string) bool {
	var stat unix.Stat_t
	return !s.ended() && unix.Lstat(path, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFSOCK &&
		stat.Dev == s.device && stat.Ino == s.inode && int(stat.Uid) == os.Geteuid()
}

// accept clients until the socket is closed: whatever else is wrong may pass.
func (s *socket) accept(serve func(*net.UnixConn)) {
	for {
		client, err := s.listener.AcceptUnix()
		switch {
		case s.ended():
			if err == nil {
				go hurried(patience, func() { _ = client.Close() })
			}
			return
		case err == nil:
			s.enter(client)
			go hurried(patience, func() {
				serve(client)
				_ = client.Close()
				s.left(client)
			})
			pause(pace)
		default:
			s.mutex.Lock()
			if s.failing.IsZero() {
				s.failing = time.Now()
			}
			s.mutex.Unlock()
			time.Sleep(rest)
		}
	}
}

// enter waits until a client has a place: the oldest is told to make way.
func (s *socket) enter(client *net.UnixConn) {
	s.mutex.Lock()
	s.failing = time.Time{}
	s.clients = append(s.clients, client)
	if len(s.clients) > crowd {
		part(s.clients[0])
	}
	s.mutex.Unlock()
	select {
	case s.places <- struct{}{}:
	case <-s.done:
		// Its goroutine takes one of those that are left.
		part(client)
		s.places <- struct{}{}
	}
}

func (s *socket) left(client *net.UnixConn) {
	s.mutex.Lock()
	s.clients = slices.DeleteFunc(s.clients, func(one *net.UnixConn) bool { return one == client })
	s.mutex.Unlock()
	<-s.places
}

// part from a client: who reads it sees the end. It is not closed, which may wait.
func part(client *net.UnixConn) {
	_ = client.CloseRead()
	_ = client.CloseWrite()
}

func (s *socket) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// close takes no more clients from here on, and waits for nothing.
func (s *socket) close() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.ended() {
		return
	}
	close(s.done)
	s.control(func(fd int) { _ = unix.Shutdown(fd, unix.SHUT_RDWR) })
	for _, client := range s.clients {
		part(client)
	}
	go hurried(patience, func() { _ = s.listener.Close() })
}

// hurried runs what may close descriptors that a pod sent. The kernel waits there no longer than until a signal comes.
func hurried(each time.Duration, run func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	done, thread := make(chan struct{}), unix.Gettid()
	defer close(done)
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(each):
				// It interrupts a system call, and means nothing to Go's runtime.
				_ = unix.Tgkill(os.Getpid(), thread, unix.SIGURG)
			}
		}
	}()
	run()
}

// taken is the file whose presence tells that the claim's nth lease was handed out.
func (s *Sockets) taken(uid types.UID, n int) string {
	return filepath.Join(s.ledger.Dir(uid), fmt.Sprintf("taken.%d", n))
}

// Renew: the claim's nth lease will be another one.
func (s *Sockets) Renew(uid types.UID, n int) error {
	if err := os.Remove(s.taken(uid, n)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Close ends the sockets of a claim.
func (s *Sockets) Close(uid types.UID) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, socket := range s.open[uid] {
		socket.close()
	}
	delete(s.open, uid)
}

// Sick tells which claim's socket takes no client any more.
func (s *Sockets) Sick(now time.Time) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for uid, sockets := range s.open {
		for _, socket := range sockets {
			socket.mutex.Lock()
			failing := socket.failing
			socket.mutex.Unlock()
			if !failing.IsZero() && now.Sub(failing) > sickness {
				return fmt.Errorf("the socket of claim %s takes no client since %s", uid, failing.Format(time.RFC3339))
			}
		}
	}
	return nil
}

func answer(client *net.UnixConn, give func(*net.UnixConn, broker.Question) error) {
	frame := make([]byte, 256)
	for {
		_ = client.SetDeadline(time.Now().Add(patience))
		n, err := client.Read(frame)
		if err != nil || n == 0 {
			return
		}
		question, err := broker.DecodeQuestion(frame[:n])
		if err != nil {
			_, _ = client.Write((&broker.Refused{Reason: broker.Malformed, Text: err.Error()}).Encode(0))
			return
		}
		if question.Kind != broker.AskLease {
			no := &broker.Refused{Reason: broker.Denied, Text: "this socket has the lease of one claim: ask for that"}
			_, _ = client.Write(no.Encode(question.Tag))
			time.Sleep(rest)
			continue
		}
		if err := give(client, question); err != nil {
			no := &broker.Refused{Reason: broker.Host, Text: err.Error()}
			_, _ = client.Write(no.Encode(question.Tag))
			time.Sleep(rest)
		}
	}
}

func matches(want broker.Want, piece ledger.Piece) bool {
	return want.Bytes == piece.Bytes && uint64(want.Page) == piece.Page && (want.Node == broker.AnyNode || int(want.Node) == piece.Node)
}

// take a lease's mark; an error: another has it.
func take(mark string) error {
	file, err := os.OpenFile(mark, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err == nil {
		err = file.Close()
	}
	return err
}

func takenAt(mark string) time.Time {
	info, err := os.Stat(mark)
	if err != nil {
		return time.Now()
	}
	return info.ModTime()
}

// lease sends the lease, whose mark is taken. An error is what the client is told.
func lease(client *net.UnixConn, tag uint32, piece ledger.Piece, path, taken string) error {
	file, err := unix.Open(path, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		// Nobody had it.
		_ = os.Remove(taken)
		return fmt.Errorf("%s: %w", path, err)
	}
	defer unix.Close(file)
	var stat unix.Stat_t
	if err := unix.Fstat(file, &stat); err != nil {
		return err
	}
	// Of this backing clients expect no seals; the kernel seals no file that has a name.
	granted := broker.Granted{Number: 1, Bytes: piece.Bytes, Page: broker.Page(piece.Page), Node: int32(piece.Node),
		Backing: broker.Tmpfs, Inode: stat.Ino}
	_, _, err = client.WriteMsgUnix(granted.Encode(tag), unix.UnixRights(file), nil)
	return err
}
