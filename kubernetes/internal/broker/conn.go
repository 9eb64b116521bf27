package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Lease is memory: it lives until the last descriptor and mapping of it are gone.
type Lease struct {
	Granted
	File *os.File
}

// Conn is a connection: one question at a time, from one goroutine.
// A context that ends closes it, and with it what was waited for.
type Conn struct {
	socket *net.UnixConn
	path   string
	tag    uint32
}

// A broker that answers takes a connection within a pause of its loop; one that is stopped never does.
const (
	dialWait  = 5 * time.Second
	dialPause = time.Millisecond
)

// System is where the broker of a host is: the path of a client that names none.
const System = "/run/prezero/prezerod.sock"

// Dial connects to the broker at this path.
// At the system's path it is root's or the caller's own; any other path names a broker, whichever user's it is.
// A broker whose queue of connections is full is waited for, until the context ends or for dialWait.
func Dial(ctx context.Context, path string) (*Conn, error) {
	var dialer net.Dialer
	ctx, cancel := context.WithTimeout(ctx, dialWait)
	defer cancel()
	socket, err := dialer.DialContext(ctx, "unixpacket", path)
	// connect(2) on a socket that blocks waits by itself; Go's do not block.
	for errors.Is(err, unix.EAGAIN) && ctx.Err() == nil {
		time.Sleep(dialPause)
		socket, err = dialer.DialContext(ctx, "unixpacket", path)
	}
	if err != nil {
		mend := "does prezerod run?"
		if errors.Is(err, os.ErrPermission) {
			mend = "this user may not connect; see socket-mode in prezerod(8)"
		}
		return nil, fmt.Errorf("%w; %s", err, mend)
	}
	c := &Conn{socket: socket.(*net.UnixConn), path: path}
	if err := c.trust(); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// trust: another user's broker would hand out memory that is not zero, and read what is written to it.
func (c *Conn) trust() error {
	if c.path != System {
		return nil
	}
	raw, err := c.socket.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	// A service of a user without rights may listen for root: in a directory of root's it was root that bound it.
	var dir unix.Stat_t
	if peer.Uid == 0 || int(peer.Uid) == os.Geteuid() || (unix.Stat(filepath.Dir(c.path), &dir) == nil && dir.Uid == 0) {
		return nil
	}
	return fmt.Errorf("%s: a broker of uid %d, which is neither root nor you; to trust it name another path", c.path, peer.Uid)
}

// Close ends the connection.
func (c *Conn) Close() error { return c.socket.Close() }

// Lease leases this, waiting for so long if it is not ready.
func (c *Conn) Lease(ctx context.Context, want Want, wait time.Duration) (*Lease, error) {
	return c.granted(ctx, func(tag uint32) []byte {
		return binary.LittleEndian.AppendUint32(appendWant(open(kindLease, tag), want), milliseconds(wait))
	})
}

// Available asks how much there is.
func (c *Conn) Available(ctx context.Context, page Page, node int32) (Available, error) {
	a, _, err := c.ask(ctx, kindStock, func(tag uint32) []byte {
		frame := binary.LittleEndian.AppendUint64(open(kindAvailable, tag), uint64(page))
		return binary.LittleEndian.AppendUint32(frame, uint32(node))
	})
	if err != nil {
		return Available{}, err
	}
	return a.available()
}

// Yield leaves so much of the pool of such pages to those who were promised it, until told otherwise.
func (c *Conn) Yield(ctx context.Context, page Page, bytes uint64) error {
	a, _, err := c.ask(ctx, kindDone, func(tag uint32) []byte {
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(open(kindYield, tag), bytes), uint64(page))
	})
	if err != nil {
		return err
	}
	return a.body.end()
}

// Report asks for a report, all parts of it.
func (c *Conn) Report(ctx context.Context, which Which) (string, error) {
	var whole strings.Builder
	for from := uint64(0); ; {
		a, _, err := c.ask(ctx, kindPart, func(tag uint32) []byte {
			frame := binary.LittleEndian.AppendUint32(open(kindReport, tag), uint32(which))
			return binary.LittleEndian.AppendUint64(frame, from)
		})
		if err != nil {
			return "", err
		}
		from = a.body.u64()
		whole.WriteString(a.body.text())
		if err := a.body.end(); err != nil || from == 0 {
			return whole.String(), err
		}
	}
}

// LeaseNamed leases this under a name, waiting for so long if it is not ready.
// A lease that lies there already is the answer, whatever its size: the broker makes no second one.
func (c *Conn) LeaseNamed(ctx context.Context, name string, want Want, wait time.Duration) (Named, error) {
	a, _, err := c.ask(ctx, kindNamed, func(tag uint32) []byte {
		frame := binary.LittleEndian.AppendUint32(appendWant(open(kindLeaseNamed, tag), want), milliseconds(wait))
		frame = binary.LittleEndian.AppendUint32(frame, uint32(len(name)))
		return append(frame, name...)
	})
	if err != nil {
		return Named{}, err
	}
	return a.named()
}

func (c *Conn) granted(ctx context.Context, request func(uint32) []byte) (*Lease, error) {
	a, file, err := c.ask(ctx, kindGranted, request)
	if err != nil {
		return nil, err
	}
	granted, err := a.granted()
	if err == nil && file == nil {
		err = errors.New("no descriptor came with the lease; is the limit of open files reached?")
	}
	if err == nil {
		err = check(granted, file)
	}
	if err != nil {
		if file != nil {
			_ = file.Close()
		}
		return nil, err
	}
	return &Lease{Granted: granted, File: file}, nil
}

// check: size, number and seals are as granted, so nobody cuts the lease short under its client.
// The kernel seals nothing of a tmpfs.
func check(granted Granted, file *os.File) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return err
	}
	if uint64(stat.Size) != granted.Bytes || stat.Ino != granted.Inode {
		return errors.New("the lease is not as granted: another file came with it")
	}
	const sealed = unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	if granted.Backing != Tmpfs {
		if seals, err := unix.FcntlInt(file.Fd(), unix.F_GET_SEALS, 0); err != nil || seals&sealed != sealed {
			return errors.New("the lease is not as granted: its size is not sealed")
		}
	}
	return nil
}

// ask sends a request and reads until its answer, which is of this kind or an error.
func (c *Conn) ask(ctx context.Context, kind byte, request func(uint32) []byte) (answer, *os.File, error) {
	if err := ctx.Err(); err != nil {
		return answer{}, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.socket.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	c.tag++
	// A broker that turned the connection away has said why before it closed.
	if _, err := c.socket.Write(request(c.tag)); err != nil && !errors.Is(err, syscall.EPIPE) {
		return answer{}, nil, c.gone(ctx, err)
	}
	for reset := false; ; {
		a, file, err := c.receive()
		switch {
		case err != nil && errors.Is(err, syscall.ECONNRESET) && !reset:
			// The kernel tells of the unread question first, and of the answer after it.
			reset = true
			continue
		case err != nil:
			return answer{}, nil, c.gone(ctx, err)
		case a.kind == kindNo || (a.kind == kindWhen && a.tag == c.tag):
			return answer{}, nil, a.refusal()
		case a.tag != c.tag:
			// What an earlier question, given up by now, was answered.
			if file != nil {
				_ = file.Close()
			}
		case a.kind != kind:
			if file != nil {
				_ = file.Close()
			}
			return answer{}, nil, errors.New("the broker answered out of turn; are driver and broker of one version?")
		default:
			return a, file, nil
		}
	}
}

func (c *Conn) gone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s does not answer: %w", c.path, context.Cause(ctx))
	}
	if errors.Is(err, errFrame) {
		return err
	}
	return fmt.Errorf("the broker at %s is gone: %w", c.path, err)
}

func (c *Conn) receive() (answer, *os.File, error) {
	packet, rights := make([]byte, maxAnswer), make([]byte, unix.CmsgSpace(4))
	n, rn, _, _, err := c.socket.ReadMsgUnix(packet, rights)
	if err != nil {
		return answer{}, nil, err
	}
	if n == 0 && rn == 0 {
		return answer{}, nil, syscall.ECONNRESET
	}
	var file *os.File
	if messages, err := unix.ParseSocketControlMessage(rights[:rn]); err == nil {
		for _, message := range messages {
			if fds, err := unix.ParseUnixRights(&message); err == nil {
				for _, fd := range fds {
					if file != nil {
						_ = file.Close()
					}
					file = os.NewFile(uintptr(fd), "prezero")
				}
			}
		}
	}
	a, err := decode(packet[:n])
	if err != nil && file != nil {
		_ = file.Close()
		file = nil
	}
	return a, file, err
}
