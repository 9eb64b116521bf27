package driver

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	acmeta "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"prezero.dev/kubernetes/internal/broker"
	"prezero.dev/kubernetes/internal/ledger"
	"prezero.dev/kubernetes/internal/params"
)

// Conditions of an allocated device (KEP-5007): the scheduler binds a pod once its leases are ready, and looks for
// another node where one is refused.
const (
	ready   = "Ready"
	refused = "Refused"
)

const (
	// Claims that are prepared at once: most wait for memory that is being made.
	binders = 16
	// How soon, and how late, a claim that is not ready is tried again.
	bindAgain, bindLatest = 100 * time.Millisecond, 10 * time.Second
)

// isReady is what the status of a claim says of a lease that is made.
func isReady() *acmeta.ConditionApplyConfiguration {
	return condition(ready, "Leased", "The memory is zero and populated.")
}

func condition(kind, reason, message string) *acmeta.ConditionApplyConfiguration {
	return acmeta.Condition().WithType(kind).WithStatus(metav1.ConditionTrue).WithReason(reason).WithMessage(message).
		WithLastTransitionTime(metav1.Now())
}

// allocation of a claim: a name may come back.
type allocation struct {
	cache.ObjectName
	uid types.UID
}

// bind prepares claims as soon as they are allocated here, while the scheduler waits to bind their pods.
func (d *Driver) bind(ctx context.Context) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[allocation](bindAgain, bindLatest))
	heard := func(object any) {
		if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = last.Obj
		}
		if claim, ok := object.(*resourceapi.ResourceClaim); ok && len(d.own(claim)) > 0 {
			queue.Add(allocation{cache.MetaObjectToName(claim), claim.UID})
		}
	}
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(d.client.ResourceV1().RESTClient(), "resourceclaims", "", fields.Everything()),
		ObjectType:    &resourceapi.ResourceClaim{},
		Transform:     d.trimmed,
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: heard, DeleteFunc: heard,
			// One that was allocated here may be so no more.
			UpdateFunc: func(was, now any) { heard(was); heard(now) }},
	})
	var workers sync.WaitGroup
	for range binders {
		workers.Go(func() {
			for {
				one, done := queue.Get()
				if done {
					return
				}
				if err := d.bindOne(ctx, one); err != nil {
					klog.FromContext(ctx).Info("Not ready to bind", "claim", one.ObjectName, "why", err)
					queue.AddRateLimited(one)
				} else {
					queue.Forget(one)
				}
				queue.Done(one)
			}
		})
	}
	controller.RunWithContext(ctx)
	queue.ShutDown()
	workers.Wait()
}

// trimmed is what stays in memory of a claim: whether the scheduler waits for it here. All claims of the cluster come, and
// each has what its maker wrote.
func (d *Driver) trimmed(object any) (any, error) {
	claim, ok := object.(*resourceapi.ResourceClaim)
	if !ok {
		return object, nil
	}
	stays := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
		ResourceVersion: claim.ResourceVersion}}
	if own := d.own(claim); len(own) > 0 {
		one := resourceapi.DeviceRequestAllocationResult{Driver: params.Driver, Pool: d.Node, BindingConditions: []string{ready}}
		stays.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{one}}}
	}
	return stays, nil
}

// own results of a claim's allocation: those for whose leases here the scheduler waits.
func (d *Driver) own(claim *resourceapi.ResourceClaim) []resourceapi.DeviceRequestAllocationResult {
	if claim == nil || claim.Status.Allocation == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(claim.Status.Allocation.Devices.Results), func(result resourceapi.DeviceRequestAllocationResult) bool {
		return result.Driver != params.Driver || result.Pool != d.Node || len(result.BindingConditions) == 0
	})
}

// bindOne says of an allocated claim that its leases are ready, or refused; an error: not yet. Of one that is allocated
// here no more, and that no kubelet will give back, it gives back what there is.
func (d *Driver) bindOne(ctx context.Context, one allocation) error {
	claim, err := d.client.ResourceV1().ResourceClaims(one.Namespace).Get(ctx, one.Name, getOptions)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err != nil || claim.UID != one.uid || len(d.own(claim)) == 0 {
		record, err := d.ledger.Get(one.uid)
		if err != nil || record == nil {
			return err
		}
		stale, err := d.isStale(ctx, record)
		if err != nil || !stale {
			return err
		}
		return d.unprepare(one.uid)
	}
	if d.isSaid(claim) {
		return nil
	}
	if _, err := d.wanted(claim); err != nil {
		return d.refuse(ctx, claim, err)
	}
	_, record, err := d.prepare(ctx, claim)
	var no *broker.Refused
	switch {
	case err == nil:
		return d.tell(ctx, claim, record.Pieces, isReady())
	case errors.As(err, &no) && !no.Reason.Passes():
		return d.refuse(ctx, claim, err)
	}
	return err
}

// refuse says of what a claim is allocated here why it has none of it.
func (d *Driver) refuse(ctx context.Context, claim *resourceapi.ResourceClaim, why error) error {
	var pieces []ledger.Piece
	for _, result := range d.own(claim) {
		pieces = append(pieces, ledger.Piece{Pool: result.Pool, Device: result.Device, ShareID: result.ShareID})
	}
	return d.tell(ctx, claim, pieces, condition(refused, "NoLease", why.Error()))
}

// isSaid tells whether each lease of a claim here is ready or refused by its status.
func (d *Driver) isSaid(claim *resourceapi.ResourceClaim) bool {
	said := map[[4]string]bool{}
	for _, device := range claim.Status.Devices {
		said[[4]string{device.Driver, device.Pool, device.Device, ptr.Deref(device.ShareID, "")}] =
			apimeta.IsStatusConditionTrue(device.Conditions, ready) || apimeta.IsStatusConditionTrue(device.Conditions, refused)
	}
	for _, result := range d.own(claim) {
		if !said[[4]string{result.Driver, result.Pool, result.Device, string(ptr.Deref(result.ShareID, ""))}] {
			return false
		}
	}
	return true
}
