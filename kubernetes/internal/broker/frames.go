// Package broker speaks with prezerod: the frames of crates/prezerod/PROTOCOL.md, and a connection.
package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// Page is a size of page, in bytes.
type Page uint64

const (
	// Huge is a page of 2 MiB.
	Huge Page = 2 << 20
	// Giant is a page of 1 GiB.
	Giant Page = 1 << 30
)

// String names a page as Kubernetes does.
func (p Page) String() string {
	switch p {
	case Huge:
		return "2Mi"
	case Giant:
		return "1Gi"
	}
	return fmt.Sprintf("%d bytes", uint64(p))
}

// AnyNode leaves the choice of the NUMA node to the broker.
const AnyNode int32 = -1

// Want is memory that a client asks for.
type Want struct {
	Bytes uint64
	Page  Page
	Node  int32
}

// Backing is what the kernel makes the pages of.
type Backing uint32

const (
	Hugetlb Backing = 1
	Thp     Backing = 2
	Tmpfs   Backing = 3
)

// String names a backing as the broker's reports do.
func (b Backing) String() string {
	switch b {
	case Hugetlb:
		return "hugetlb"
	case Thp:
		return "thp"
	case Tmpfs:
		return "tmpfs"
	}
	return fmt.Sprintf("backing %d", uint32(b))
}

// Reason is why there is no lease.
type Reason uint32

const (
	Malformed Reason = 1 + iota
	Size
	Node
	Host
	Denied
	Quota
	Busy
	Empty
	Pressure
	Audit
	_
	Kernel
	Drained
)

var reasons = [...]string{"malformed", "size", "node", "host", "denied", "quota", "busy", "empty",
	"pressure", "audit", "", "kernel", "drained"}

// String names a reason as the broker's metrics do.
func (r Reason) String() string {
	if r >= 1 && int(r) <= len(reasons) {
		return reasons[r-1]
	}
	return fmt.Sprintf("reason %d", uint32(r))
}

// Passes tells whether the same request may be granted soon.
func (r Reason) Passes() bool { return r == Busy || r == Empty || r == Pressure || r == Kernel }

// Granted is what the broker tells of a lease.
type Granted struct {
	Number  uint64
	Bytes   uint64
	Page    Page
	Node    int32
	Backing Backing
	Inode   uint64
	// Age is how long it had been ready; 0: it was made for this request.
	Age time.Duration
	// Cost is the CPU time that making it took.
	Cost time.Duration
	// Waited is how long the request waited.
	Waited time.Duration
	// ChargedToTenant tells whose cgroup pays: the tenant's, or the broker's.
	ChargedToTenant bool
}

// Named is a lease that lies under a name.
type Named struct {
	Bytes   uint64
	Page    Page
	Backing Backing
	Inode   uint64
	Age     time.Duration
	Waited  time.Duration
	// Found: it lay there before this request.
	Found bool
	// Path is the file, as the broker sees it.
	Path string
}

// Available is the stock, as this client may have it.
type Available struct {
	Ready, Largest, Making uint64
	// Pace is bytes made in a second; 0: not known.
	Pace uint64
	// QuotaLeft is what the tenant may still lease; NoBound: as much as there is.
	QuotaLeft uint64
}

// NoBound is the quota of a tenant without one.
const NoBound = ^uint64(0)

// Which report is asked for.
type Which uint32

const (
	// Stock is the stock as JSON.
	Stock Which = 1
	// Metrics are the counters as Prometheus text.
	Metrics Which = 2
)

// MaxName is the longest name of a named lease, bytes.
const MaxName = 64

const (
	maxAnswer = 16 << 10
	header    = 8
	version   = 1
	unknown   = ^uint64(0)

	kindLease      = 1
	kindAvailable  = 5
	kindReport     = 7
	kindLeaseNamed = 8
	kindYield      = 9

	kindGranted = 129
	kindNo      = 130
	kindWhen    = 131
	kindStock   = 133
	kindDone    = 135
	kindPart    = 136
	kindNamed   = 137
)

// Refused is a NO: it stays so until something changes. The text says what would help.
type Refused struct {
	Reason Reason
	Text   string
}

func (e *Refused) Error() string { return "no lease: " + e.Text }

// NotNow is a WHEN: the same question may be answered otherwise later.
type NotNow struct {
	// After so long, if Known.
	After  time.Duration
	Known  bool
	Reason Reason
	Text   string
}

func (e *NotNow) Error() string {
	if !e.Known {
		return "not now: " + e.Text
	}
	return fmt.Sprintf("not now: %s (ready in about %.1f s)", e.Text, e.After.Seconds())
}

// errFrame is an answer that is none of this protocol.
var errFrame = errors.New("the broker's answer is no frame of this protocol; are driver and broker of one version?")

func open(kind byte, tag uint32) []byte {
	frame := append(make([]byte, 0, 128), 'P', 'Z', version, kind)
	return binary.LittleEndian.AppendUint32(frame, tag)
}

func appendWant(frame []byte, want Want) []byte {
	frame = binary.LittleEndian.AppendUint64(frame, want.Bytes)
	frame = binary.LittleEndian.AppendUint64(frame, uint64(want.Page))
	return binary.LittleEndian.AppendUint32(frame, uint32(want.Node))
}

// milliseconds of a time as frames have it: what is too long is the longest.
func milliseconds(d time.Duration) uint32 {
	if ms := d.Milliseconds(); ms < 0 {
		return 0
	} else if ms < int64(^uint32(0)) {
		return uint32(ms)
	}
	return ^uint32(0)
}

// nanoseconds of a frame: what is too long is the longest.
func nanoseconds(ns uint64) time.Duration {
	if ns > uint64(1<<63-1) {
		return 1<<63 - 1
	}
	return time.Duration(ns)
}

// answer is a frame that was read; body is what only its kind knows.
type answer struct {
	kind byte
	tag  uint32
	body reader
}

func decode(frame []byte) (answer, error) {
	if len(frame) < header || frame[0] != 'P' || frame[1] != 'Z' || frame[2] != version {
		return answer{}, errFrame
	}
	return answer{kind: frame[3], tag: binary.LittleEndian.Uint32(frame[4:]), body: reader{rest: frame[header:]}}, nil
}

// reader takes fields off a body; after a short one every field is 0 and end fails.
type reader struct {
	rest  []byte
	short bool
}

func (r *reader) take(n int) []byte {
	if len(r.rest) < n {
		r.short, r.rest = true, nil
		return make([]byte, n)
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *reader) u32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *reader) u64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

func (r *reader) text() string {
	n := r.u32()
	if uint64(n) != uint64(len(r.rest)) || !utf8.Valid(r.rest) {
		r.short = true
		return ""
	}
	return string(r.take(int(n)))
}

func (r *reader) end() error {
	if r.short || len(r.rest) > 0 {
		return errFrame
	}
	return nil
}

// refusal reads a NO or a WHEN.
func (a *answer) refusal() error {
	r := &a.body
	switch a.kind {
	case kindNo:
		no := &Refused{Reason: Reason(r.u32()), Text: r.text()}
		if err := r.end(); err != nil {
			return err
		}
		return no
	case kindWhen:
		ns := r.u64()
		when := &NotNow{After: nanoseconds(ns), Known: ns != unknown, Reason: Reason(r.u32()), Text: r.text()}
		if err := r.end(); err != nil {
			return err
		}
		return when
	}
	return nil
}

func (a *answer) granted() (Granted, error) {
	r := &a.body
	g := Granted{Number: r.u64(), Bytes: r.u64(), Page: Page(r.u64()), Node: int32(r.u32()),
		Backing: Backing(r.u32()), Inode: r.u64(), Age: nanoseconds(r.u64()), Cost: nanoseconds(r.u64()),
		Waited: nanoseconds(r.u64()), ChargedToTenant: r.u32() == 2}
	return g, r.end()
}

func (a *answer) named() (Named, error) {
	r := &a.body
	p := Named{Bytes: r.u64(), Page: Page(r.u64()), Backing: Backing(r.u32()), Inode: r.u64(),
		Age: nanoseconds(r.u64()), Waited: nanoseconds(r.u64()), Found: r.u32() == 1, Path: r.text()}
	return p, r.end()
}

func (a *answer) available() (Available, error) {
	r := &a.body
	s := Available{Ready: r.u64(), Largest: r.u64(), Making: r.u64(), Pace: r.u64(), QuotaLeft: r.u64()}
	return s, r.end()
}
