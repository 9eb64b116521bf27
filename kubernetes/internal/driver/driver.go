// Package driver is the DRA plugin: it tells the scheduler what may be leased, and prepares claims.
//
//	kubelet -- gRPC --> Driver -- LEASE_NAMED --> prezerod        a file in a place, under the claim's UID
//	                      |-- ledger                       which claims have leases here
//	                      |-- delivery                     CDI, sockets
//	API server <-- slices, events, conditions
//
// The kubelet asks again until it is answered, and another process may answer than was asked: each step finds what an
// earlier one did, and does it once. Prepare: record, name, own, serve, describe. Unprepare: the same backwards.
package driver

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	metadatav1beta1 "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

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
	// Binding has the scheduler bind a pod only once its leases are ready.
	Binding bool
	// NRI is the socket of the runtime; "": none.
	NRI string
	// Library is preloaded into containers of namespaces that ask for it; "": none is.
	Library string
	// Pod is the UID of the driver's pod: with it another instance may run beside this one. "": no other does.
	Pod string
	// Cgroups is where the kernel tells what containers have.
	Cgroups string
	Host    places.Host
}

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

	// fatal ends Run, with the reason.
	fatal context.CancelCauseFunc
	// turned is when the driver last looked around: it lives.
	turned atomic.Int64
	// drained: the node has DrainLabel. nudge has the next look come at once.
	drained atomic.Bool
	nudge   chan struct{}
	// brokers are the broker's own metrics at the last look; nil: it did not answer.
	brokers atomic.Pointer[string]
	// emptying counts leases that are given back, and that a process keeps from being emptied.
	emptying atomic.Int64
	// leads: of the drivers of this node, this one answers the runtime.
	leads atomic.Bool

	mutex sync.Mutex
	// devices as they were published last.
	published published
	// The API server takes no taints: nothing is published instead of tainted devices.
	taintless bool
	// It takes no binding conditions: pods are bound at once.
	bindless bool
}

// New takes up what is on disk; nothing is served yet.
func New(options Options, client kubernetes.Interface, events record.EventRecorder, metrics *Metrics) (*Driver, error) {
	records, err := ledger.Open(filepath.Join(options.Data, "claims"))
	if err != nil {
		return nil, fmt.Errorf("--data: %w", err)
	}
	cdi, err := delivery.NewCDI(options.CDI)
	if err != nil {
		return nil, err
	}
	d := &Driver{Options: options, client: client, events: events, ledger: records, cdi: cdi,
		sockets: delivery.NewSockets(records), metrics: metrics, nudge: make(chan struct{}, 1)}
	d.sockets.Another = d.another
	return d, nil
}

// Run serves the kubelet until the context ends, or something is wrong that no retry mends.
func (d *Driver) Run(ctx context.Context, name string) error {
	ctx, d.fatal = context.WithCancelCause(ctx)
	defer d.fatal(nil)
	if !d.mounted(ctx) {
		return nil
	}
	d.resume(ctx)
	options := []kubeletplugin.Option{
		kubeletplugin.DriverName(name),
		kubeletplugin.NodeName(d.Node),
		kubeletplugin.KubeClient(d.client),
		kubeletplugin.PluginDataDirectoryPath(d.Data),
		kubeletplugin.RegistrarDirectoryPath(d.Registry),
		// Claims wait for leases, and must not wait for each other's.
		kubeletplugin.Serialize(false),
		kubeletplugin.EnableDeviceMetadata(true, []schema.GroupVersion{metadatav1beta1.SchemeGroupVersion}),
		kubeletplugin.MetadataFileOps(delivery.MetadataFiles(d.ledger)),
		kubeletplugin.CDIDirectory(d.CDI),
	}
	if d.Pod != "" {
		// Another pod may take over while this one ends.
		options = append(options, kubeletplugin.RollingUpdate(types.UID(d.Pod)))
	}
	helper, err := kubeletplugin.Start(ctx, d, options...)
	if err != nil {
		return err
	}
	defer helper.Stop()
	d.helper = helper
	if d.NRI != "" {
		preload, err := d.preload(ctx)
		if err != nil {
			return err
		}
		d.mayYield = true
		d.containers = &nri.Plugin{Leased: d.leased, Raised: d.Allocatable, Yield: d.yield, Cgroups: d.Cgroups, Preload: preload}
		go d.lead(ctx)
	}
	go d.watchNode(ctx)
	if d.Binding {
		go d.bind(ctx)
	}
	go d.sweepUntilDone(ctx)
	for look := time.NewTicker(d.Look); ; {
		d.publish(ctx)
		d.yieldAgain(ctx)
		d.serveBeside(ctx)
		d.turned.Store(time.Now().UnixNano())
		select {
		case <-ctx.Done():
			look.Stop()
			if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		case <-look.C:
		case <-d.nudge:
		}
	}
}

// mounted waits until leases have their directories, which another pod mounts; false: the context ended before.
func (d *Driver) mounted(ctx context.Context) bool {
	for told := ""; ; {
		_, err := places.All(d.Files)
		if err == nil {
			return true
		}
		if err.Error() != told {
			told = err.Error()
			d.failed(ctx, err, "wait for the directories of leases")
		}
		d.mutex.Lock()
		d.published.absent = err
		d.mutex.Unlock()
		select {
		case <-ctx.Done():
			return false
		case <-time.After(d.Look):
		}
	}
}

// HandleError is told by the kubelet's helper what goes wrong in the background. What is not recoverable ends the driver,
// and the kubelet starts another one.
func (d *Driver) HandleError(ctx context.Context, err error, msg string) {
	if d.dropped(err) {
		return
	}
	d.failed(ctx, err, msg)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) && d.fatal != nil {
		d.fatal(fmt.Errorf("%s: %w", msg, err))
	}
}

// failed counts what goes wrong in the background, and is tried again.
func (d *Driver) failed(ctx context.Context, err error, msg string) {
	d.metrics.Errors.Inc()
	klog.FromContext(ctx).Error(err, msg)
}

// Live tells why the driver should be started anew; nil: it need not.
func (d *Driver) Live(now time.Time) error {
	// A look waits for the broker at most.
	if turned := d.turned.Load(); turned != 0 && now.Sub(time.Unix(0, turned)) > 10*d.Look+time.Minute {
		return fmt.Errorf("no look at pools and broker since %s", time.Unix(0, turned).Format(time.RFC3339))
	}
	return d.sockets.Sick(now)
}

// Ready tells why no claim can be prepared now; nil: all is there.
func (d *Driver) Ready() error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	switch {
	case d.published.absent != nil:
		return d.published.absent
	case !d.published.once:
		return errors.New("no device of this node is published yet")
	}
	return nil
}

// Broker is what prezerod tells Prometheus, which reaches no socket of the host.
func (d *Driver) Broker() (string, error) {
	if text := d.brokers.Load(); text != nil {
		return *text, nil
	}
	return "", errors.New("prezerod did not answer at the last look")
}

// event tells the pods of a claim something.
func (d *Driver) event(pods []v1.ObjectReference, reason, text string) {
	for n := range pods {
		d.events.Event(&pods[n], v1.EventTypeWarning, reason, text)
	}
}
