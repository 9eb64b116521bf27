package level0

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"prezero.dev/kubernetes/internal/rig"
)

func TestProbesTellWhatIsWrong(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := listener.Addr().String()
	_ = listener.Close()
	n := newNode(t, "16M", "", "--metrics", at)
	probe := func(path string, status int, words string) {
		t.Helper()
		rig.Until(t, path+" is "+fmt.Sprint(status), func() bool {
			answer, err := http.Get("http://" + at + path)
			if err != nil {
				return false
			}
			defer answer.Body.Close()
			text, _ := io.ReadAll(answer.Body)
			return answer.StatusCode == status && strings.Contains(string(text), words)
		})
	}
	probe("/readyz", http.StatusOK, "ok")
	probe("/healthz", http.StatusOK, "ok")
	probe("/metrics", http.StatusOK, "prezero_dra_broker_up 1")
	probe("/metrics/prezerod", http.StatusOK, "prezerod_quarantined_kinds 0")
	n.broker.Kill()
	probe("/readyz", http.StatusServiceUnavailable, "does prezerod run?")
	probe("/metrics/prezerod", http.StatusServiceUnavailable, "did not answer")
	// A driver that is started anew mends no broker.
	probe("/healthz", http.StatusOK, "ok")
	n.broker.Start()
	probe("/readyz", http.StatusOK, "ok")
}

func TestTheVersionIsALine(t *testing.T) {
	if out, err := rig.Command(t, "--version"); err != nil || !strings.HasPrefix(out, "prezero-dra ") || strings.Count(out, "\n") != 1 {
		t.Errorf("%v: %q", err, out)
	}
}
