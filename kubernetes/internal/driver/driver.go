// Package driver is the DRA plugin: it tells the scheduler what may be leased, and prepares claims.
//
//	kubelet -- gRPC --> Driver -- PARK --> prezerod        a file in a place, under the claim's UID
//	                      |-- ledger                       which claims have leases here
//	                      |-- delivery                     CDI, sockets
//	API server <-- slices, events, conditions
//
// The kubelet asks again until it is answered, and another process may answer than was asked: each step finds what an
// earlier one did, and does it once. Prepare: record, park, own, serve, describe. Unprepare: the same backwards.
package driver

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"
	"k8s.io/utils/keymutex"

	"prezero.dev/kubernetes/internal/delivery"
	"prezero.dev/kubernetes/internal/ledger"
	"prezero.dev/kubernetes/internal/nri"
	"prezero.dev/kubernetes/internal/places"
)

// Options are what the command line says.
type Options struct {
	Node   string
	Socket string
	Files  []string
	CDI    string
	// Data is the plugin's directory below the kubelet's.
	Data string
	// Registry is where the kubelet looks for plugins.
	Registry string
	// Wait is how long a Prepare may wait for a lease that is being made.
	Wait time.Duration
	// Look is how often pools, file systems and the broker are looked at.
	Look time.Duration
	// Absent is how long the broker may be away until nothing is scheduled here.
	Absent time.Duration
	// Allocatable publishes what of the node's own resources a lease is.
	Allocatable bool
	// NRI is the socket of the runtime; "": none.
	NRI string
	// Cgroups is where the kernel tells what containers have.
	Cgroups string
	Host    places.Host
}

// Claims are locked by hash: this many make it unlikely that one waits for another's lease.
const locks = 4096

// Driver is the plugin on one node.
type Driver struct {
	Options
	client  kubernetes.Interface
	events  record.EventRecorder
	ledger  *ledger.Ledger
	cdi     *delivery.CDI
	sockets *delivery.Sockets
	metrics *Metrics
	helper  *kubeletplugin.Helper
	// containers hears of them; nil: there is no runtime with NRI.
	containers *nri.Plugin
	// mayYield: the broker may have been told of pages that containers were promised. Of containers.Tell alone.
	mayYield bool

	// claims has a claim for one call at a time.
	claims keymutex.KeyMutex

	mutex sync.Mutex
	// devices as they were published last.
	published published
	// The API server takes no taints: nothing is published instead of tainted devices.
	taintless bool
}

// New takes up what is on disk; nothing is served yet.
func New(options Options, client kubernetes.Interface, events record.EventRecorder, metrics *Metrics) (*Driver, error) {
	if _, err := places.All(options.Files); err != nil {
		return nil, err
	}
	records, err := ledger.Open(filepath.Join(options.Data, "claims"))
	if err != nil {
		return nil, fmt.Errorf("--data: %w", err)
	}
	cdi, err := delivery.NewCDI(options.CDI)
	if err != nil {
		return nil, err
	}
	return &Driver{Options: options, client: client, events: events, ledger: records, cdi: cdi,
		claims: keymutex.NewHashed(locks), sockets: delivery.NewSockets(records), metrics: metrics}, nil
}

// Run serves the kubelet until the context ends.
func (d *Driver) Run(ctx context.Context, name string) error {
	d.resume(ctx)
	helper, err := kubeletplugin.Start(ctx, d,
		kubeletplugin.DriverName(name),
		kubeletplugin.NodeName(d.Node),
		kubeletplugin.KubeClient(d.client),
		kubeletplugin.PluginDataDirectoryPath(d.Data),
		kubeletplugin.RegistrarDirectoryPath(d.Registry),
		// Claims wait for leases, and must not wait for each other's.
		kubeletplugin.Serialize(false),
	)
	if err != nil {
		return err
	}
	defer helper.Stop()
	d.helper = helper
	if d.NRI != "" {
		d.mayYield = true
		d.containers = &nri.Plugin{Leased: d.leased, Raised: d.Allocatable, Yield: d.yield, Cgroups: d.Cgroups}
		go d.containers.Run(ctx, d.NRI)
	}
	go d.sweepUntilDone(ctx)
	for look := time.NewTicker(d.Look); ; {
		d.publish(ctx)
		d.yieldAgain(ctx)
		select {
		case <-ctx.Done():
			look.Stop()
			return nil
		case <-look.C:
		}
	}
}

// lock has a claim for one goroutine; the function that comes back lets it go.
func (d *Driver) lock(uid types.UID) func() {
	d.claims.LockKey(string(uid))
	return func() { _ = d.claims.UnlockKey(string(uid)) }
}

// HandleError is told what goes wrong in the background.
func (d *Driver) HandleError(ctx context.Context, err error, msg string) {
	if d.dropped(err) {
		klog.FromContext(ctx).Info("The API server takes no device taints (feature gate DRADeviceTaints): devices are withdrawn instead of tainted")
		return
	}
	d.metrics.Errors.Inc()
	klog.FromContext(ctx).Error(err, msg)
}

// event tells the pods of a claim something.
func (d *Driver) event(pods []v1.ObjectReference, reason, text string) {
	for n := range pods {
		d.events.Event(&pods[n], v1.EventTypeWarning, reason, text)
	}
}
