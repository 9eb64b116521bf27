package level0

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
)

func TestADriverThatDiesAtAStepLosesAndDoublesNothing(t *testing.T) {
	for _, step := range []string{"recorded", "named", "described", "prepared", "undescribed", "given back"} {
		t.Run(step, func(t *testing.T) {
			n := newNode(t, "64M", "")
			other, claim := n.claim(1, 4, ""), n.claim(2, 8, "")
			n.prepare(other)
			unprepares := step == "undescribed" || step == "given back"
			if unprepares {
				n.prepare(claim)
			}
			n.driver.Kill()
			n.driver.Env = []string{"PREZERO_DRA_CRASH=" + step}
			n.driver.Start()
			if unprepares {
				if err := n.driver.Unprepare(claim); err == nil {
					t.Fatal("it answered")
				}
			} else if _, err := n.driver.Prepare(claim); err == nil {
				t.Fatal("it answered")
			}
			n.driver.Died()
			n.driver.Env = nil
			n.driver.Start()
			if unprepares {
				n.unprepare(claim)
				n.books(other)
			} else {
				n.prepare(claim)
				n.books(other, claim)
				n.unprepare(claim)
			}
			n.unprepare(other)
			n.nothingIsLeft()
		})
	}
}

// number of an environment variable: long tests give larger ones.
func number(name string, usual int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return usual
}

// Random prepares and unprepares while driver and broker are killed at random moments. After each kill the kubelet
// asks again until it is answered, and the books must be those of what it was told.
func TestRandomKillsOfDriverAndBrokerLoseAndDoubleNothing(t *testing.T) {
	const claims = 6
	n := newNode(t, "96M", "[[stock]]\nsize = \"4M\"\nkeep = 2\ntenant = \"kubernetes\"\n")
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	all := make([]*resourceapi.ResourceClaim, claims)
	for i := range all {
		all[i] = n.claim(i, 4, "")
	}
	wanted := make([]bool, claims)
	for kill := range number("KILLS", 40) {
		// What the kubelet wants next, of three claims at once.
		chosen := random.Perm(claims)[:3]
		for _, i := range chosen {
			wanted[i] = !wanted[i]
		}
		var asked sync.WaitGroup
		for _, i := range chosen {
			asked.Go(func() {
				if wanted[i] {
					_, _ = n.driver.Prepare(all[i])
				} else {
					_ = n.driver.Unprepare(all[i])
				}
			})
		}
		time.Sleep(time.Duration(random.IntN(12_000)) * time.Microsecond)
		switch {
		case random.IntN(3) > 0:
			n.driver.Kill()
			asked.Wait()
			n.driver.Start()
		default:
			n.broker.Kill()
			n.broker.Start()
			asked.Wait()
		}
		var has []*resourceapi.ResourceClaim
		for i, claim := range all {
			if wanted[i] {
				n.prepare(claim)
				has = append(has, claim)
			} else if slices.Contains(chosen, i) {
				n.unprepare(claim)
			}
		}
		n.books(has...)
		if t.Failed() {
			t.Fatal(fmt.Sprintf("after kill %d", kill+1))
		}
	}
	for _, claim := range all {
		n.unprepare(claim)
	}
	n.nothingIsLeft()
}
