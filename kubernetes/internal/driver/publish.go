package driver

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"

	"prezero.dev/kubernetes/internal/broker"
	"prezero.dev/kubernetes/internal/ledger"
	"prezero.dev/kubernetes/internal/places"
)

// How long a look at the broker may take.
const glance = 2 * time.Second

// Draining is the file whose presence keeps claims away: `prezero-dra drain` makes it.
const Draining = "draining"

// published is what the API server was told.
type published struct {
	once    bool
	devices []resourceapi.Device
	taint   string
	why     string
	// answered is when the broker answered last.
	answered time.Time
	// absent is why it did not at the last look.
	absent error
}

// publish tells the API server what may be leased here, if that has changed.
func (d *Driver) publish(ctx context.Context) {
	all, err := places.All(d.Files)
	if err != nil {
		// What was promised stays: a mount comes back, and leases in it are still leases.
		d.failed(ctx, err, "look at the directories of leases")
		return
	}
	audit, err := d.look(ctx)
	if err != nil {
		d.brokers.Store(nil)
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	was := &d.published
	now := time.Now()
	was.absent = err
	d.metrics.lookedAt(all, Held(all), err)
	if err == nil || was.answered.IsZero() {
		was.answered = now
	}
	offer := Offer{Places: all, Host: d.Host, Allocatable: d.Allocatable, Binding: d.Binding && !d.bindless}
	switch {
	case d.drained.Load() || exists(filepath.Join(d.Data, Draining)):
		offer.Taint = "draining"
	case audit:
		offer.Taint, offer.Why = "audit", "memory-not-zero"
	case now.Sub(was.answered) > d.Absent:
		offer.Taint, offer.Why = "broker", "absent"
	}
	d.metrics.tainted(offer.Taint)
	devices := offer.Devices()
	if d.taintless && offer.Taint != "" {
		devices = nil
	}
	was.taint, was.why = offer.Taint, offer.Why
	if was.once && equality.Semantic.DeepEqual(devices, was.devices) {
		return
	}
	// Errors of the API server come to HandleError.
	if err := d.helper.PublishResources(ctx, pools(d.Node, devices)); err != nil {
		d.failed(ctx, err, "publish")
		return
	}
	klog.FromContext(ctx).Info("Published", "devices", len(devices), "taint", offer.Taint)
	was.once, was.devices = true, devices
	d.metrics.Published.Inc()
}

// dropped takes note of an API server without device taints, or without binding conditions.
func (d *Driver) dropped(err error) bool {
	var dropped *resourceslice.DroppedFieldsError
	if !errors.As(err, &dropped) {
		return false
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if !d.bindless && slices.Contains(dropped.DisabledFeatures(), "DRADeviceBindingConditions") {
		d.bindless = true
		klog.Background().Info("The API server takes no binding conditions (feature gate DRADeviceBindingConditions): pods wait on their node")
		// What it took is what is published without them.
		d.published.once = false
		return true
	}
	if d.taintless || d.published.taint == "" {
		return false
	}
	d.taintless = true
	klog.Background().Info("The API server takes no device taints (feature gate DRADeviceTaints): devices are withdrawn instead of tainted")
	// The next look withdraws what has a taint.
	d.published.once = false
	return true
}

// look asks the broker whether it answers, and whether an audit failed.
func (d *Driver) look(ctx context.Context) (audit bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, glance)
	defer cancel()
	conn, err := broker.Dial(ctx, d.Socket)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	text, err := conn.Report(ctx, broker.Metrics)
	if err == nil {
		d.brokers.Store(&text)
	}
	return gauge(text, "prezerod_quarantined_kinds") > 0, err
}

// Held is what claims have, by place.
func Held(all []places.Place) map[string]uint64 {
	held := map[string]uint64{}
	for _, place := range all {
		held[place.Dir] = 0
		// Of their file systems: a pod may say what it likes of the length of a file.
		for _, lease := range places.Mounted(place.Dir) {
			if ledger.Owner(lease.Name) != "" && !lease.GivenBack {
				held[place.Dir] += lease.Size
			}
		}
	}
	return held
}

// gauge of the broker's metrics; 0: there is none.
func gauge(text, name string) uint64 {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			number, _ := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
			return number
		}
	}
	return 0
}

// WatchHealthStatus tells the kubelet how the devices are.
func (d *Driver) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case reports <- d.health():
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(d.Look):
		}
	}
}

func (d *Driver) health() kubeletplugin.DeviceHealthReport {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	health, message := kubeletplugin.HealthStatusHealthy, ""
	switch d.published.taint {
	case "audit":
		health, message = kubeletplugin.HealthStatusUnhealthy, "an audit found memory that was not zero; see the log of prezerod"
	case "broker":
		health, message = kubeletplugin.HealthStatusUnknown, "prezerod does not answer; leases that are out are not affected"
	}
	var report kubeletplugin.DeviceHealthReport
	for _, device := range d.published.devices {
		report.Devices = append(report.Devices, kubeletplugin.DeviceHealth{PoolName: d.Node, DeviceName: device.Name,
			Health: health, LastUpdated: time.Now(), HealthCheckTimeout: 6 * d.Look, Message: message})
	}
	return report
}
