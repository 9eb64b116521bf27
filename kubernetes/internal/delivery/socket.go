package delivery

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
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
	// How long a socket rests after an accept that failed: until another file is closed.
	rest = 100 * time.Millisecond
	// A socket whose accepts fail for longer is told by Sick.
	sickness = 30 * time.Second

	socketName = "prezerod.sock"
)

// Sockets answer LEASE in the broker's place, so that a pod takes its lease with any client of prezerod's.
// Each hands its lease out once: what the pod writes stays in it, and is not zero for the next one.
//
// A socket lies in a directory of its own, which only the driver writes: a pod sees the directory, and may connect.
//
// Two drivers may serve the same claims while one replaces the other. Each records what it bound. What is recorded and
// takes clients is left alone; the driver that starts takes over.
type Sockets struct {
	ledger *ledger.Ledger
	mutex  sync.Mutex
	open   map[types.UID]map[int]*socket
}

// socket is one that listens here.
type socket struct {
	listener *net.UnixListener
	// device and inode of what was bound: another process may have replaced it.
	device, inode uint64

	mutex   sync.Mutex
	clients []*net.UnixConn
	// failing since then; zero: the last accept was good.
	failing time.Time
	ended   bool
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
	piece, taken := claim.Pieces[n], s.taken(claim.UID, n)
	go fresh.accept(func(client *net.UnixConn) { answer(client, piece, path, taken) })
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
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: inside + fresh, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false)
	s := &socket{listener: listener}
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
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return !s.ended && unix.Lstat(path, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFSOCK &&
		stat.Dev == s.device && stat.Ino == s.inode && int(stat.Uid) == os.Geteuid()
}

// accept clients until the socket is closed: whatever else is wrong may pass.
func (s *socket) accept(serve func(*net.UnixConn)) {
	for {
		client, err := s.listener.AcceptUnix()
		switch {
		case err == nil:
			s.mutex.Lock()
			s.failing = time.Time{}
			if len(s.clients) == crowd {
				_ = s.clients[0].Close()
				s.clients = s.clients[1:]
			}
			s.clients = append(s.clients, client)
			s.mutex.Unlock()
			go func() {
				serve(client)
				s.left(client)
			}()
		case errors.Is(err, net.ErrClosed):
			return
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

func (s *socket) left(client *net.UnixConn) {
	_ = client.Close()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for n, other := range s.clients {
		if other == client {
			s.clients = append(s.clients[:n:n], s.clients[n+1:]...)
			return
		}
	}
}

func (s *socket) close() {
	_ = s.listener.Close()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.ended = true
	for _, client := range s.clients {
		_ = client.Close()
	}
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

func answer(client *net.UnixConn, piece ledger.Piece, path, taken string) {
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
			continue
		}
		if err := lease(client, question, piece, path, taken); err != nil {
			no := &broker.Refused{Reason: broker.Host, Text: err.Error()}
			_, _ = client.Write(no.Encode(question.Tag))
		}
	}
}

// lease sends the lease, once. An error is what the client is told.
func lease(client *net.UnixConn, question broker.Question, piece ledger.Piece, path, taken string) error {
	want := question.Want
	if want.Bytes != piece.Bytes || uint64(want.Page) != piece.Page {
		return fmt.Errorf("the claim has %d bytes in pages of %d; ask for just that", piece.Bytes, piece.Page)
	}
	if want.Node != broker.AnyNode && int(want.Node) != piece.Node {
		return fmt.Errorf("the claim's lease lies on node %d; ask for that, or any", piece.Node)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return err
	}
	// Before it is sent: a lease that is lost is better than one that two believe zero.
	mark, err := os.OpenFile(taken, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return errors.New("the lease was taken before, and holds what was written since; start a new pod for zero memory")
	}
	_ = mark.Close()
	// Of this backing clients expect no seals; the kernel seals no file that has a name.
	granted := broker.Granted{Number: 1, Bytes: piece.Bytes, Page: broker.Page(piece.Page), Node: int32(piece.Node),
		Backing: broker.Tmpfs, Inode: stat.Ino}
	_, _, err = client.WriteMsgUnix(granted.Encode(question.Tag), unix.UnixRights(int(file.Fd())), nil)
	return err
}
