package driver

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"prezero.dev/kubernetes/internal/params"
)

// DrainLabel of a node keeps new claims away, as the file Draining does: any value but "false".
const DrainLabel = params.Driver + "/drain"

// watchNode hears of the labels of this node.
func (d *Driver) watchNode(ctx context.Context) {
	own := fields.OneTermEqualSelector("metadata.name", d.Node)
	heard := func(object any) {
		node, ok := object.(*v1.Node)
		if !ok || node.Name != d.Node {
			return
		}
		value, labelled := node.Labels[DrainLabel]
		if drained := labelled && value != "false"; d.drained.Swap(drained) != drained {
			select {
			case d.nudge <- struct{}{}:
			default:
			}
		}
	}
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(d.client.CoreV1().RESTClient(), "nodes", "", own),
		ObjectType:    &v1.Node{},
		Handler:       cache.ResourceEventHandlerFuncs{AddFunc: heard, UpdateFunc: func(_, now any) { heard(now) }},
	})
	controller.RunWithContext(ctx)
}
