package driver

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

func TestWhatTheHelperCallsFatalEndsTheDriverAndNothingElseDoes(t *testing.T) {
	d := &Driver{metrics: NewMetrics(prometheus.NewRegistry())}
	ctx, cancel := context.WithCancelCause(context.Background())
	d.fatal = cancel
	d.HandleError(ctx, fmt.Errorf("an API server that is away: %w", kubeletplugin.ErrRecoverable), "publish")
	d.failed(ctx, errors.New("a file that cannot be read"), "sweep")
	if ctx.Err() != nil {
		t.Fatal(context.Cause(ctx))
	}
	lost := errors.New("the socket is lost")
	d.HandleError(ctx, lost, "serve the kubelet")
	if !errors.Is(context.Cause(ctx), lost) {
		t.Fatal(context.Cause(ctx))
	}
}
