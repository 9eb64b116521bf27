package driver

import (
	"context"
	"encoding/json"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	acmeta "k8s.io/client-go/applyconfigurations/meta/v1"
	resourceac "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/klog/v2"

	"prezero.dev/kubernetes/internal/ledger"
	"prezero.dev/kubernetes/internal/params"
	"prezero.dev/kubernetes/internal/places"
)

// tellSmall tells the pods of a claim that its leases are mapped in small pages, which is slow and harms nothing.
func (d *Driver) tellSmall(ctx context.Context, claim *resourceapi.ResourceClaim) {
	all, err := places.All(d.Files)
	if err != nil {
		return
	}
	for _, place := range all {
		for _, lease := range d.Host.Small(place) {
			if ledger.Owner(lease.Name) != claim.UID {
				continue
			}
			const text = "the kernel maps this lease in pages of 4 KiB: its first use is slow; see huge= in the driver's documentation"
			klog.FromContext(ctx).Info("Small pages", "claim", klog.KObj(claim), "lease", lease.Name)
			d.event(pods(claim), "PrezeroSmallPages", text)
		}
	}
}

// tellLeased writes into the claim what it has. Where no scheduler waits for it nothing depends on it: an API server
// without it says so in the log.
func (d *Driver) tellLeased(ctx context.Context, claim *resourceapi.ResourceClaim, record *ledger.Claim) {
	d.tellSmall(ctx, claim)
	if err := d.tell(ctx, claim, record.Pieces, isReady()); err != nil {
		klog.FromContext(ctx).Info("The claim's status stays as it is", "claim", klog.KObj(claim), "why", err)
	}
}

// leaseData is what `kubectl get resourceclaim -o yaml` shows of a lease.
type leaseData struct {
	Bytes   uint64         `json:"bytes"`
	Page    string         `json:"pageSize"`
	Node    int            `json:"numaNode"`
	Deliver params.Deliver `json:"deliver"`
}

// tell writes into the claim's status what it has, and how that is.
func (d *Driver) tell(ctx context.Context, claim *resourceapi.ResourceClaim, pieces []ledger.Piece, is *acmeta.ConditionApplyConfiguration) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	status := resourceac.ResourceClaimStatus()
	for _, piece := range pieces {
		data, err := json.Marshal(leaseData{piece.Bytes, pageOf(piece).String(), piece.Node, piece.Deliver})
		if err != nil {
			return err
		}
		device := resourceac.AllocatedDeviceStatus().WithDriver(params.Driver).WithPool(piece.Pool).WithDevice(piece.Device).WithConditions(is)
		if piece.Bytes > 0 {
			device = device.WithData(runtime.RawExtension{Raw: data})
		}
		if piece.ShareID != nil {
			device = device.WithShareID(string(*piece.ShareID))
		}
		status = status.WithDevices(device)
	}
	apply := resourceac.ResourceClaim(claim.Name, claim.Namespace).WithUID(claim.UID).WithStatus(status)
	options := metav1.ApplyOptions{FieldManager: params.Driver + "-" + d.Node, Force: true}
	_, err := d.client.ResourceV1().ResourceClaims(claim.Namespace).ApplyStatus(ctx, apply, options)
	return err
}
