package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"prezero.dev/kubernetes/internal/driver"
)

// What an operator is told is done survives the driver and the machine, or is an error.
func TestADrainIsMarkedOrRefused(t *testing.T) {
	dir := t.TempDir()
	c := command{Options: driver.Options{Data: dir}}
	at := filepath.Join(dir, driver.Draining)
	for _, verb := range []string{"drain", "drain", "undrain", "undrain", "drain"} {
		if err := c.run(verb, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(at); (err == nil) != (verb == "drain") {
			t.Errorf("%s: %v", verb, err)
		}
	}
	if err := os.Remove(at); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), at); err != nil {
		t.Fatal(err)
	}
	if err := c.run("drain", nil); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a link is followed: %v", err)
	}
	c.Data = filepath.Join(dir, "none")
	if err := c.run("drain", nil); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
