package rig

import (
	"bytes"
	"sync"
	"testing"
	"time"
)

// Patience is longer than anything takes on a machine that starves: only a failure waits so long.
const Patience = 2 * time.Minute

// Until something is so.
func Until(t testing.TB, what string, isSo func() bool) {
	t.Helper()
	for began := time.Now(); !isSo(); time.Sleep(2 * time.Millisecond) {
		if time.Since(began) > Patience {
			t.Fatalf("%s: in vain for %v", what, Patience)
		}
	}
}

// Log has what a process says in the test's log, if the test fails.
type Log struct {
	t     testing.TB
	name  string
	mutex sync.Mutex
	lines [][]byte
	once  sync.Once
}

// NewLog of a process of that name.
func NewLog(t testing.TB, name string) *Log { return &Log{t: t, name: name} }

// Write a piece.
func (l *Log) Write(text []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.lines = append(l.lines, bytes.Clone(text))
	if len(l.lines) > 400 {
		l.lines = l.lines[200:]
	}
	l.once.Do(func() {
		l.t.Cleanup(func() {
			if l.t.Failed() {
				l.mutex.Lock()
				defer l.mutex.Unlock()
				l.t.Logf("%s said:\n%s", l.name, bytes.Join(l.lines, nil))
			}
		})
	})
	return len(text), nil
}

func (l *Log) has(words string) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return bytes.Contains(bytes.Join(l.lines, nil), []byte(words))
}
