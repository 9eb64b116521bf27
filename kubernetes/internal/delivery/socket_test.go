package delivery

import (
	"context"
	"path/filepath"
	"testing"

	"prezero.dev/kubernetes/internal/broker"
	"prezero.dev/kubernetes/internal/ledger"
	"prezero.dev/kubernetes/internal/params"
)

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
