//go:build crash

// Package crash ends the driver at a step, for its tests: only a binary that is built with -tags crash does.
package crash

import (
	"os"
	"syscall"
)

// At is a step: the driver dies here if PREZERO_DRA_CRASH names it, as by kill -9.
func At(step string) {
	if os.Getenv("PREZERO_DRA_CRASH") == step {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}
