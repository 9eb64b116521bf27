package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"prezero.dev/kubernetes/internal/broker"
	"prezero.dev/kubernetes/internal/driver"
	"prezero.dev/kubernetes/internal/ledger"
	"prezero.dev/kubernetes/internal/places"
)

// status prints what this node has, by looking at what is there: a driver need not run.
func status(options driver.Options, out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if _, err := os.Lstat(filepath.Join(options.Data, driver.Draining)); err == nil {
		fmt.Fprintln(out, "draining: no new claims come here")
	}
	all, err := places.All(options.Files)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := broker.Dial(ctx, options.Socket)
	if err != nil {
		fmt.Fprintf(out, "broker: %v\n", err)
	} else {
		defer conn.Close()
	}
	fmt.Fprintln(table, "DIRECTORY\tPAGES\tBACKING\tNODE\tMAY BE LEASED\tREADY\tBEING MADE")
	nodes := options.Host.Nodes()
	for _, place := range all {
		for _, node := range nodes {
			ready, making := "?", "?"
			if conn != nil {
				if stock, err := conn.Available(ctx, place.Page, int32(node)); err == nil {
					ready, making = size(stock.Ready), size(stock.Making)
				}
			}
			room := options.Host.Room(place, node, len(nodes))
			fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", place.Dir, place.Page, place.Backing, node, size(room), ready, making)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	records, broken, err := ledger.Look(filepath.Join(options.Data, "claims"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	fmt.Fprintln(out)
	fmt.Fprintln(table, "CLAIM\tREQUEST\tSIZE\tPAGES\tNODE\tDELIVERED\tSTATE")
	for _, claim := range records {
		for n, piece := range claim.Pieces {
			state := "being prepared"
			if claim.Prepared {
				state = "prepared"
			}
			if !isNamed(all, claim, n) {
				state += ", no file"
			}
			fmt.Fprintf(table, "%s/%s\t%s\t%s\t%s\t%d\t%s\t%s\n", claim.Namespace, claim.Name, piece.Request, size(piece.Bytes),
				broker.Page(piece.Page), piece.Node, piece.Deliver, state)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, place := range all {
		for _, lease := range places.Mounted(place.Dir) {
			if lease.GivenBack && lease.Size > 4096 {
				fmt.Fprintf(out, "\n%s in %s: given back, and some process has it open: %s cannot be leased until that ends\n", lease.Name, place.Dir, size(lease.Size))
			}
		}
	}
	for _, place := range all {
		for _, lease := range options.Host.Small(place) {
			fmt.Fprintf(out, "\n%s in %s: mapped in small pages: its first use takes a fault for each 4 KiB; see huge= in docs/kubernetes.md\n", lease.Name, place.Dir)
		}
	}
	for _, what := range broken {
		fmt.Fprintf(out, "\n%v: it is made anew when the kubelet asks for the claim\n", what)
	}
	return nil
}

func isNamed(all []places.Place, claim *ledger.Claim, n int) bool {
	for _, place := range all {
		if uint64(place.Page) == claim.Pieces[n].Page {
			_, err := os.Lstat(ledger.File(place.Dir, claim.Lease(n)))
			return err == nil
		}
	}
	return false
}

func size(bytes uint64) string {
	if bytes > 1<<62 {
		return "no bound"
	}
	return resource.NewQuantity(int64(bytes), resource.BinarySI).String()
}
