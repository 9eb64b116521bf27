package nri_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"prezero.dev/kubernetes/internal/broker"
	"prezero.dev/kubernetes/internal/nri"
	"prezero.dev/kubernetes/internal/rig"
)

const (
	mib = 1 << 20
	uid = "00000000-0000-4000-8000-000000000001"
)

// told is what a broker was told last.
type told struct {
	sync.Mutex
	promised nri.Promised
	err      error
}

func (t *told) yield(_ context.Context, promised nri.Promised) error {
	t.Lock()
	defer t.Unlock()
	t.promised = promised
	return t.err
}

func (t *told) of(page broker.Page) uint64 {
	t.Lock()
	defer t.Unlock()
	return t.promised[page]
}

// serve has a plugin at a runtime, which has these containers already. The claim has 16 MiB of the pool.
func serve(t *testing.T, plugin *nri.Plugin, containers ...*api.Container) (*rig.Runtime, *told) {
	t.Helper()
	told := &told{}
	plugin.Yield = told.yield
	plugin.Leased = func(claim types.UID) nri.Promised {
		if claim == uid {
			return nri.Promised{broker.Huge: 16 * mib}
		}
		return nil
	}
	runtime := rig.NewRuntime(t, containers...)
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	go plugin.Run(ctx, runtime.Socket)
	runtime.Plugin(1)
	return runtime, told
}

func mounted(container *api.Container) *api.Container {
	container.Mounts = append(container.Mounts, &api.Mount{Destination: "/run/prezero/leases/" + uid + "/ram"})
	return container
}

func limit(adjust *api.ContainerAdjustment, size string) (uint64, bool) {
	for _, limit := range adjust.GetLinux().GetResources().GetHugepageLimits() {
		if limit.PageSize == size {
			return limit.Limit, true
		}
	}
	return 0, false
}

func TestALimitThatTheKubeletRaisedIsSetBack(t *testing.T) {
	runtime, told := serve(t, &nri.Plugin{Raised: true})
	byName := rig.Container("by-name", 24*mib)
	byName.CDIDevices = []*api.CDIDevice{{Name: "prezero.dev/lease=" + uid + "-0"}, {Name: "vendor.example/gpu=1"}}
	both := mounted(rig.Container("both", 24*mib))
	both.CDIDevices = byName.CDIDevices
	for _, c := range []struct {
		container *api.Container
		left      uint64
	}{
		{mounted(rig.Container("none-of-its-own", 16*mib)), 0},
		{mounted(rig.Container("some-of-its-own", 24*mib)), 8 * mib},
		{mounted(rig.Container("less-than-the-lease", 2*mib)), 0},
		{byName, 8 * mib},
		{both, 8 * mib},
	} {
		adjust := runtime.Create(c.container)
		if left, set := limit(adjust, "2MB"); !set || left != c.left {
			t.Errorf("%s: %d, %v", c.container.Id, left, set)
		}
		if _, set := limit(adjust, "1GB"); set {
			t.Errorf("%s: the limit of other pages is changed", c.container.Id)
		}
		runtime.Remove(c.container)
	}
	if left, set := limit(runtime.Create(rig.Container("no-claim", 16*mib)), "2MB"); set {
		t.Errorf("a container without a claim has a limit of %d", left)
	}
	if promised := told.of(broker.Huge); promised != 16*mib {
		t.Errorf("%d bytes are promised", promised)
	}
}

func TestALimitThatNobodyRaisedStays(t *testing.T) {
	runtime, told := serve(t, &nri.Plugin{})
	if left, set := limit(runtime.Create(mounted(rig.Container("own", 16*mib))), "2MB"); set {
		t.Errorf("it is %d now", left)
	}
	if promised := told.of(broker.Huge); promised != 16*mib {
		t.Errorf("%d bytes are promised", promised)
	}
}

func TestWhatContainersHaveTakenIsPromisedNoLonger(t *testing.T) {
	root := t.TempDir()
	write := func(file, text string) {
		t.Helper()
		path := filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	runs, ended := rig.Container("runs", 32*mib), rig.Container("ended", 64*mib)
	runs.State, ended.State = api.ContainerState_CONTAINER_RUNNING, api.ContainerState_CONTAINER_STOPPED
	plugin := &nri.Plugin{Cgroups: root}
	runtime, told := serve(t, plugin, runs, ended)
	if promised := told.of(broker.Huge); promised != 32*mib {
		t.Errorf("%d bytes are promised at first", promised)
	}
	// Mapped are 12 MiB, of which 4 are in use.
	write("kubepods/runs/hugetlb.2MB.rsvd.current", "12582912\n")
	write("kubepods/runs/hugetlb.2MB.current", "4194304\n")
	if promised := plugin.Promised()[broker.Huge]; promised != 20*mib {
		t.Errorf("%d bytes are promised when 12 MiB are taken", promised)
	}
	other := rig.Container("other", 8*mib)
	other.Linux.CgroupsPath = "kubepods-burstable-podx.slice:cri-containerd:other"
	write("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podx.slice/cri-containerd-other.scope/hugetlb.2MB.current", "8388608\n")
	runtime.Create(other)
	if promised := told.of(broker.Huge); promised != 20*mib {
		t.Errorf("%d bytes are promised beside a container that has all of its own", promised)
	}
	runtime.Remove(runs)
	if promised := plugin.Promised()[broker.Huge]; promised != 0 {
		t.Errorf("%d bytes are promised to containers that are gone", promised)
	}
}

func TestAContainerStartsThoughTheBrokerIsAwayAndSmallOnesAskNothing(t *testing.T) {
	runtime, told := serve(t, &nri.Plugin{Raised: true})
	told.Lock()
	told.err, told.promised = errors.New("no broker"), nri.Promised{broker.Giant: 1}
	told.Unlock()
	runtime.Create(rig.Container("no-pages", 0))
	if told.of(broker.Giant) != 1 {
		t.Error("the broker was asked for a container without huge pages")
	}
	runtime.Create(rig.Container("pages", 2*mib))
	if told.of(broker.Huge) != 2*mib {
		t.Error("the broker was not asked")
	}
}

// The driver looks at all containers now and then, and an event tells of one: what the broker hears last is the latest.
func TestALookAndAnEventAtOnceLeaveTheLatestPromise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told, slow := &told{}, make(chan struct{})
		plugin := &nri.Plugin{Yield: func(ctx context.Context, promised nri.Promised) error {
			if len(promised) == 0 {
				<-slow
			}
			return told.yield(ctx, promised)
		}}
		go func() { _ = plugin.Tell(t.Context()) }()
		synctest.Wait()
		go func() { _, _, _ = plugin.CreateContainer(t.Context(), nil, rig.Container("one", 8*mib)) }()
		synctest.Wait()
		close(slow)
		synctest.Wait()
		if promised := told.of(broker.Huge); promised != 8*mib {
			t.Errorf("the broker heard of %d bytes last", promised)
		}
	})
}

// The runtime waits for 2 seconds by default.
func TestAContainerWaitsASecondAtMostForWhatALookTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plugin := &nri.Plugin{Yield: func(ctx context.Context, _ nri.Promised) error { <-ctx.Done(); return ctx.Err() }}
		go func() { _ = plugin.Tell(t.Context()) }()
		synctest.Wait()
		began := time.Now()
		if _, _, err := plugin.CreateContainer(t.Context(), nil, rig.Container("one", 8*mib)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it started after %v", took)
		}
	})
}

func TestARuntimeWithoutNRIIsSaidOnceWithWhatIsMissing(t *testing.T) {
	for _, plugin := range []*nri.Plugin{{}, {Preload: &nri.Preload{}}} {
		lines := make(chan string, 8)
		log := funcr.New(func(_, line string) { lines <- line }, funcr.Options{})
		ctx, stop := context.WithCancel(klog.NewContext(context.Background(), log))
		ended := make(chan struct{})
		go func() {
			plugin.Run(ctx, filepath.Join(t.TempDir(), "nri.sock"))
			close(ended)
		}()
		line := <-lines
		stop()
		<-ended
		if !strings.Contains(line, "stock does not yield") || strings.Contains(line, "without the library") != (plugin.Preload != nil) {
			t.Error(line)
		}
		if len(lines) != 0 {
			t.Error("it is said again:", <-lines)
		}
	}
}
