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

// How long a client of a socket may be silent.
const patience = 10 * time.Second

// Sockets answer LEASE in the broker's place, so that a pod takes its lease with any client of prezerod's.
// Each hands its lease out once: what the pod writes stays in it, and is not zero for the next one.
type Sockets struct {
	ledger *ledger.Ledger
	mutex  sync.Mutex
	open   map[types.UID][]*net.UnixListener
}

// NewSockets serves none yet.
func NewSockets(ledger *ledger.Ledger) *Sockets {
	return &Sockets{ledger: ledger, open: map[types.UID][]*net.UnixListener{}}
}

// SocketPath of the claim's nth lease; its directory is the container's.
func (s *Sockets) SocketPath(uid types.UID, n int) string {
	return filepath.Join(s.ledger.Dir(uid), strconv.Itoa(n), "prezerod.sock")
}

// Serve hands out the claim's nth lease, which lies at path.
func (s *Sockets) Serve(claim *ledger.Claim, n int, path string) error {
	piece, at := claim.Pieces[n], s.SocketPath(claim.UID, n)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	if err := os.Remove(at); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: at, Net: "unixpacket"})
	if err != nil {
		return err
	}
	listener.SetUnlinkOnClose(false)
	// The directory is bound into one pod only, whose user another namespace names.
	if err := os.Chmod(at, 0o666); err != nil {
		_ = listener.Close()
		return err
	}
	s.mutex.Lock()
	s.open[claim.UID] = append(s.open[claim.UID], listener)
	s.mutex.Unlock()
	taken := s.taken(claim.UID, n)
	go func() {
		for {
			client, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			go answer(client, piece, path, taken)
		}
	}()
	return nil
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
	for _, listener := range s.open[uid] {
		_ = listener.Close()
	}
	delete(s.open, uid)
}

// IsServed tells whether a claim has sockets here.
func (s *Sockets) IsServed(uid types.UID) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return len(s.open[uid]) > 0
}

func answer(client *net.UnixConn, piece ledger.Piece, path, taken string) {
	defer client.Close()
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
