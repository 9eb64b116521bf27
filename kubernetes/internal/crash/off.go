//go:build !crash

// Package crash ends the driver at a step, for its tests: only a binary that is built with -tags crash does.
package crash

// At is a step.
func At(string) {}
