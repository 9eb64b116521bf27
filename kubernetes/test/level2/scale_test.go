package level2

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"prezero.dev/kubernetes/internal/rig"
)

func number(name string, usual int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return usual
}

// fleet is a cluster whose nodes have one driver's devices.
type fleet struct {
	*cluster
	name, class, size string
	wall              []time.Duration
	scheduler         time.Duration
}

// Pods with a lease, and as many with a device of the reference driver, in turns. Each has a cluster of its own: the
// scheduler looks at all devices of a node for each claim, whosever they are.
func TestManyClaimsOnAThousandNodes(t *testing.T) {
	if os.Getenv("TIMES") == "" {
		t.Skip("skipped: minutes; `make -C kubernetes scale` runs it")
	}
	nodes, claims, batch := number("NODES", 1000), number("CLAIMS", 20_000), number("BATCH", 500)
	each := number("EACH", (claims+nodes-1)/nodes)
	leases := rig.Leases(t, uint64(each), "0", "")
	fleets := []*fleet{{cluster: newCluster(t), name: "leases", class: "zero.prezero.dev", size: "1Gi"},
		{cluster: newCluster(t), name: "reference", class: "gpu.example.com"}}
	for n, f := range fleets {
		parallel(nodes, func(node int) {
			name := fmt.Sprint("node-", node)
			f.node(name, "scale")
			if n == 0 {
				f.publish(name, "prezero.dev", leases)
			} else {
				f.publish(name, f.class, rig.Reference(node, each))
			}
		})
	}
	ratios := []float64{}
	until := time.Now().Add(time.Duration(number("MINUTES", 170)) * time.Minute)
	for begun := 0; begun < claims && time.Now().Before(until); begun += batch {
		if begun/batch == claims/batch/2 {
			profiled(fleets)
		}
		for turn := range fleets {
			// Each goes first as often as the other.
			f := fleets[(turn+begun/batch)%2]
			before, began := f.cluster.scheduler.cpu(), time.Now()
			f.batch(fmt.Sprint("batch-", begun), f.class, f.size, min(batch, claims-begun))
			f.wall = append(f.wall, time.Since(began))
			f.scheduler += f.cluster.scheduler.cpu() - before
		}
		leases, reference := fleets[0], fleets[1]
		last := len(ratios)
		ratios = append(ratios, float64(leases.wall[last])/float64(reference.wall[last]))
		t.Logf("%d claims: %v and %v, CPU of the schedulers %v and %v", min(begun+batch, claims), leases.wall[last].Round(time.Millisecond),
			reference.wall[last].Round(time.Millisecond), leases.scheduler.Round(time.Second), reference.scheduler.Round(time.Second))
	}
	profiled(fleets)
	for _, f := range fleets {
		all := f.all()
		slices.Sort(f.wall)
		t.Logf("%s: %d at a time on %d nodes with room for %d each, %d times in %v: median %v, of %v to %v; CPU of the scheduler %v, of the API server %v; resident %d and %d MiB",
			f.name, batch, nodes, each, len(f.wall), all.Round(time.Second), f.wall[len(f.wall)/2].Round(time.Millisecond),
			f.wall[0].Round(time.Millisecond), f.wall[len(f.wall)-1].Round(time.Millisecond), f.scheduler.Round(time.Second),
			f.api.cpu().Round(time.Second), f.cluster.scheduler.rss()>>20, f.api.rss()>>20)
		if written := f.rewritten(); written > 0 {
			t.Errorf("%s: %d slices were rewritten", f.name, written)
		}
	}
	slices.Sort(ratios)
	t.Logf("leases took %.2f of the reference's time (the median of pairs; %.2f to %.2f), and %.2f of its scheduler's CPU",
		ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1], float64(fleets[0].scheduler)/float64(fleets[1].scheduler))
}

// profiled from the first call to the second: the second half of the claims.
func profiled(fleets []*fleet) {
	if os.Getenv(profiles) == "" {
		return
	}
	for _, f := range fleets {
		for _, process := range []*process{f.cluster.scheduler, f.api} {
			_ = process.Process.Signal(unix.SIGUSR1)
			f.Logf("%s: its %s is process %d", f.name, process.role, process.Process.Pid)
		}
	}
	// The profiles are written when the processes get to it.
	time.Sleep(time.Second)
}

// all is the time of all batches.
func (f *fleet) all() time.Duration {
	var all time.Duration
	for _, one := range f.wall {
		all += one
	}
	return all
}

// batch of pods with a claim each, until all have a node. An API server with more to do than it can is asked again.
func (c *cluster) batch(name, class, size string, number int) {
	again := func(make func() error) {
		for {
			err := make()
			if err == nil || apierrors.IsAlreadyExists(err) {
				return
			}
			c.Log(err)
			time.Sleep(time.Second)
		}
	}
	parallel(number, func(n int) {
		of := fmt.Sprintf("%s-%d", name, n)
		claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: of, Namespace: namespace},
			Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{rig.Request("ram", class, size)}}}}
		again(func() error {
			_, err := c.ResourceV1().ResourceClaims(namespace).Create(ctx, claim, strict)
			return err
		})
		made := pod(of, "scale", of)
		made.Labels = map[string]string{"batch": name}
		again(func() error {
			_, err := c.CoreV1().Pods(namespace).Create(ctx, made, strict)
			return err
		})
	})
	for {
		waiting, err := c.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "batch=" + name, FieldSelector: "spec.nodeName=", Limit: 1})
		if err == nil && len(waiting.Items) == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// rewritten counts slices that are no more as they were made.
func (c *cluster) rewritten() int {
	found, err := c.ResourceV1().ResourceSlices().List(ctx, list)
	if err != nil {
		c.Fatal(err)
	}
	written := 0
	for _, slice := range found.Items {
		if slice.Generation != 1 {
			written++
		}
	}
	return written
}

// parallel calls, some at a time.
func parallel(number int, call func(int)) {
	var all sync.WaitGroup
	turn := make(chan struct{}, 16)
	for n := range number {
		turn <- struct{}{}
		all.Go(func() { call(n); <-turn })
	}
	all.Wait()
}
