// Package linger has sockets whose close waits, for tests: what a pod may send to the driver.
package linger

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Socket is a TCP socket that takes an hour to close: it has unsent data for a peer that does not read. It lingers no
// longer than the test.
func Socket(t testing.TB) int {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	open := func() int {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		must(err)
		must(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 4096))
		must(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 4096))
		return fd
	}
	listener, fd := open(), open()
	defer unix.Close(listener)
	must(unix.Bind(listener, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	must(unix.Listen(listener, 1))
	address, err := unix.Getsockname(listener)
	must(err)
	must(unix.Connect(fd, address))
	peer, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
	must(err)
	t.Cleanup(func() { _ = unix.Close(peer) })
	must(unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 3600}))
	must(unix.SetNonblock(fd, true))
	for junk := make([]byte, 65536); err == nil; {
		_, err = unix.Write(fd, junk)
	}
	return fd
}

// Send sends such a one to a socket of prezerod's kind, and leaves. An error: the kernel let none through.
func Send(t testing.TB, socket string) error {
	t.Helper()
	client, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { go unix.Close(client) }()
	if err := unix.Connect(client, &unix.SockaddrUnix{Name: socket}); err != nil {
		return err
	}
	fd := Socket(t)
	err = unix.Sendmsg(client, []byte("no frame"), unix.UnixRights(fd), nil, unix.MSG_DONTWAIT)
	if err != nil {
		// What no one took is closed here: not with its wait.
		_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{})
	}
	// Where the other end was quicker, the wait is here.
	go unix.Close(fd)
	return err
}
