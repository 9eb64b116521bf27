package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"prezero.dev/kubernetes/internal/rig"
)

// crowd of visitors that come at once: many times those that are kept.
const crowd = 8 * visitors

// open counts those that the server has not closed, by what a read of each says.
func open(t *testing.T, conns []net.Conn) int {
	t.Helper()
	kept := 0
	for _, conn := range conns {
		if err := conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		_, err := io.Copy(io.Discard, conn)
		if timeout, is := err.(net.Error); is && timeout.Timeout() {
			kept++
		}
	}
	return kept
}

func TestVisitorsWithoutEndKeepNoProbeOut(t *testing.T) {
	for what, says := range map[string]string{
		"silent":            "",
		"half a request":    "GET /healthz HTTP/1.1\r\nHost: ",
		"asks no more":      "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
		"a header too long": fmt.Sprintf("GET /healthz HTTP/1.1\r\nX: %01000000d\r\n", 0),
	} {
		server := httptest.NewUnstartedServer(nil)
		server.Config = served(http.HandlerFunc(probe(func() error { return nil })))
		server.Start()
		address := server.Listener.Addr().String()
		var conns []net.Conn
		for range crowd {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, conn)
			_, _ = io.WriteString(conn, says)
		}
		client := http.Client{Timeout: rig.Patience}
		answer, err := client.Get("http://" + address + "/healthz")
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", what, answer.Status)
		}
		rig.Until(t, what+": the others make way", func() bool { return open(t, conns) <= visitors })
		for _, conn := range conns {
			_ = conn.Close()
		}
		server.Close()
	}
}
