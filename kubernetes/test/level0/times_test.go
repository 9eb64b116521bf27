package level0

import (
	"os"
	"slices"
	"testing"
	"time"

	"prezero.dev/kubernetes/internal/rig"
)

// What a Prepare from stock takes, beside one that finds everything prepared: the kubelet's own way and back.
func TestPrepareFromStockIsQuick(t *testing.T) {
	if os.Getenv("TIMES") == "" {
		t.Skip("skipped: a timing is no test of each day; `make -C kubernetes times` runs it")
	}
	const size, stock = 1024, "rate-busy = \"1T\"\nlimit = \"4G\"\n[[stock]]\nsize = \"1G\"\nkeep = 4\ntenant = \"kubernetes\"\n"
	for _, of := range []struct {
		name   string
		broker func(testing.TB) *rig.Broker
	}{
		{"tmpfs", func(t testing.TB) *rig.Broker { return rig.NewBroker(t, "6G", stock) }},
		{"hugetlb", func(t testing.TB) *rig.Broker { return rig.NewPoolBroker(t, 3072, stock) }},
	} {
		t.Run(of.name, func(t *testing.T) {
			b, api := of.broker(t), rig.NewAPI(t)
			n := &node{t, api, b, rig.NewDriver(t, api, b.Socket, b.Files)}
			var first, again []time.Duration
			for i := range number("CLAIMS", 200) {
				rig.Until(t, "stock", func() bool { return b.Ready() >= size*mib })
				claim := n.claim(i, size, "")
				for _, times := range []*[]time.Duration{&first, &again} {
					began := time.Now()
					if _, err := n.driver.Prepare(claim); err != nil {
						t.Fatal(err)
					}
					*times = append(*times, time.Since(began))
				}
				n.books(claim)
				n.unprepare(claim)
			}
			n.nothingIsLeft()
			slices.Sort(first)
			slices.Sort(again)
			at := func(times []time.Duration, percent int) time.Duration {
				return times[(len(times)-1)*percent/100].Round(10 * time.Microsecond)
			}
			t.Logf("1 GiB of %s from stock, %d in a row: median %v, p99 %v, longest %v; prepared already: median %v, p99 %v, longest %v", of.name,
				len(first), at(first, 50), at(first, 99), at(first, 100), at(again, 50), at(again, 99), at(again, 100))
			if over := at(first, 99) - at(again, 99); over > 20*time.Millisecond {
				t.Errorf("p99 is %v over", over)
			}
		})
	}
}
