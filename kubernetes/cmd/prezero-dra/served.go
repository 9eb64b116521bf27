package main

import (
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Metrics and probes are served on the pod's network, where any pod of the cluster connects. What that costs is bounded:
// a number of connections, of which the oldest without a request makes way, and a time for each request.
const (
	visitors   = 64
	toAsk      = 5 * time.Second
	toAnswer   = 10 * time.Second
	toAskAgain = 30 * time.Second
)

// served has this handler's requests answered, within those bounds.
func served(handler http.Handler) *http.Server {
	return &http.Server{Handler: handler, ReadTimeout: toAsk, WriteTimeout: toAnswer, IdleTimeout: toAskAgain,
		MaxHeaderBytes: 4 << 10, ConnState: (&guests{}).turned}
}

// guests are the connections of a server, the oldest first.
type guests struct {
	mutex sync.Mutex
	all   []guest
}

type guest struct {
	conn net.Conn
	// asks: its request is being answered.
	asks bool
}

// turned is told what becomes of a connection.
func (g *guests) turned(conn net.Conn, state http.ConnState) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	at := slices.IndexFunc(g.all, func(one guest) bool { return one.conn == conn })
	switch {
	case state == http.StateNew:
		if len(g.all) == visitors {
			idle := max(slices.IndexFunc(g.all, func(one guest) bool { return !one.asks }), 0)
			_ = g.all[idle].conn.Close()
			g.all = slices.Delete(g.all, idle, idle+1)
		}
		g.all = append(g.all, guest{conn: conn})
	case at < 0:
		// It made way.
	case state == http.StateClosed || state == http.StateHijacked:
		g.all = slices.Delete(g.all, at, at+1)
	default:
		g.all[at].asks = state == http.StateActive
	}
}
