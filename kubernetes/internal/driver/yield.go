package driver

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"prezero.dev/kubernetes/internal/broker"
	"prezero.dev/kubernetes/internal/nri"
)

// leased is what a claim has of hugetlb pools.
func (d *Driver) leased(uid types.UID) nri.Promised {
	record, err := d.ledger.Get(uid)
	if err != nil || record == nil {
		return nil
	}
	leased := nri.Promised{}
	for _, piece := range record.Pieces {
		if place, err := d.place(pageOf(piece)); err == nil && place.Backing == broker.Hugetlb {
			leased[pageOf(piece)] += piece.Bytes
		}
	}
	return leased
}

// yield has stock give way to what containers were promised of pools. That nothing is promised any more is told once:
// after each promise, and at first, since a driver before this one may have told of some.
func (d *Driver) yield(ctx context.Context, promised nri.Promised) error {
	nothing := len(promised) == 0
	if nothing && !d.mayYield {
		return nil
	}
	conn, err := broker.Dial(ctx, d.Socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	d.mayYield = true
	for _, page := range []broker.Page{broker.Huge, broker.Giant} {
		if err := conn.Yield(ctx, page, promised[page]); err != nil {
			return err
		}
	}
	d.mayYield = !nothing
	return nil
}

// yieldAgain tells a broker that may have started anew, and what containers have taken meanwhile.
func (d *Driver) yieldAgain(ctx context.Context) {
	if d.containers == nil || !d.leads.Load() {
		return
	}
	lack, fresh, heard := d.containers.Lack()
	d.metrics.without.Set(float64(lack))
	d.metrics.runtime.Set(0)
	if heard {
		d.metrics.runtime.Set(1)
	}
	for _, one := range fresh {
		pod := v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: one.Namespace, Name: one.Name, UID: types.UID(one.UID)}
		klog.FromContext(ctx).Info("A container runs without the library", "pod", klog.KRef(one.Namespace, one.Name), "container", one.Container)
		d.event([]v1.ObjectReference{pod}, "PrezeroNoLibrary", "container "+one.Container+
			" runs without libprezero.so: it started before its namespace was known here, or has volumes at /run and /.prezero; start it again")
	}
	ctx, cancel := context.WithTimeout(ctx, glance)
	defer cancel()
	if err := d.containers.Tell(ctx); err != nil {
		klog.FromContext(ctx).V(2).Info("Stock does not yield to the limits of containers", "why", err)
	}
}
