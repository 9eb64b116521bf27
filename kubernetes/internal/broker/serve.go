package broker

import (
	"encoding/binary"
	"errors"
)

// ErrMalformed is a request that is none of this protocol.
var ErrMalformed = errors.New("no frame of prezerod's protocol")

// Question is what a client asks, as who answers in the broker's place reads it.
// Only what belongs to its kind is set.
type Question struct {
	Tag  uint32
	Kind byte
	Want Want
	// Name of a lease that is to be named.
	Name string
	// Ms is the wait or the hold.
	Ms uint32
	// Which report.
	Which Which
}

// Kinds of question.
const (
	AskLease      = kindLease
	AskAvailable  = kindAvailable
	AskReport     = kindReport
	AskLeaseNamed = kindLeaseNamed
)

// DecodeQuestion reads a request.
func DecodeQuestion(frame []byte) (Question, error) {
	a, err := decode(frame)
	if err != nil {
		return Question{}, ErrMalformed
	}
	q, r := Question{Tag: a.tag, Kind: a.kind}, &a.body
	switch a.kind {
	case kindLease, kindLeaseNamed:
		q.Want = Want{Bytes: r.u64(), Page: Page(r.u64()), Node: int32(r.u32())}
		q.Ms = r.u32()
		if a.kind == kindLeaseNamed {
			q.Name = r.text()
		}
	case kindAvailable:
		q.Want = Want{Page: Page(r.u64()), Node: int32(r.u32())}
	case kindReport:
		q.Which = Which(r.u32())
		_ = r.u64()
	default:
		return q, ErrMalformed
	}
	if r.end() != nil {
		return q, ErrMalformed
	}
	return q, nil
}

// Encode writes a lease as an answer; the descriptor goes with it.
func (g Granted) Encode(tag uint32) []byte {
	frame := open(kindGranted, tag)
	for _, field := range []uint64{g.Number, g.Bytes, uint64(g.Page)} {
		frame = binary.LittleEndian.AppendUint64(frame, field)
	}
	frame = binary.LittleEndian.AppendUint32(frame, uint32(g.Node))
	frame = binary.LittleEndian.AppendUint32(frame, uint32(g.Backing))
	for _, field := range []uint64{g.Inode, uint64(g.Age), uint64(g.Cost), uint64(g.Waited)} {
		frame = binary.LittleEndian.AppendUint64(frame, field)
	}
	charged := uint32(1)
	if g.ChargedToTenant {
		charged = 2
	}
	return binary.LittleEndian.AppendUint32(frame, charged)
}

// Encode writes a named lease as an answer.
func (p Named) Encode(tag uint32) []byte {
	frame := open(kindNamed, tag)
	for _, field := range []uint64{p.Bytes, uint64(p.Page)} {
		frame = binary.LittleEndian.AppendUint64(frame, field)
	}
	frame = binary.LittleEndian.AppendUint32(frame, uint32(p.Backing))
	for _, field := range []uint64{p.Inode, uint64(p.Age), uint64(p.Waited)} {
		frame = binary.LittleEndian.AppendUint64(frame, field)
	}
	found := uint32(0)
	if p.Found {
		found = 1
	}
	return appendText(binary.LittleEndian.AppendUint32(frame, found), p.Path)
}

// Encode writes the stock as an answer.
func (s Available) Encode(tag uint32) []byte {
	frame := open(kindStock, tag)
	for _, field := range []uint64{s.Ready, s.Largest, s.Making, s.Pace, s.QuotaLeft} {
		frame = binary.LittleEndian.AppendUint64(frame, field)
	}
	return frame
}

// Encode writes a refusal as an answer.
func (e *Refused) Encode(tag uint32) []byte {
	return appendText(binary.LittleEndian.AppendUint32(open(kindNo, tag), uint32(e.Reason)), e.Text)
}

// Encode writes a "not now" as an answer.
func (e *NotNow) Encode(tag uint32) []byte {
	ns := uint64(e.After)
	if !e.Known {
		ns = unknown
	}
	frame := binary.LittleEndian.AppendUint64(open(kindWhen, tag), ns)
	return appendText(binary.LittleEndian.AppendUint32(frame, uint32(e.Reason)), e.Text)
}

// EncodePart writes a report of one part as an answer.
func EncodePart(tag uint32, text string) []byte {
	return appendText(binary.LittleEndian.AppendUint64(open(kindPart, tag), 0), text)
}

func appendText(frame []byte, text string) []byte {
	return append(binary.LittleEndian.AppendUint32(frame, uint32(len(text))), text...)
}
