package level0

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/nri/pkg/api"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"prezero.dev/kubernetes/internal/rig"
)

func TestANamespaceHasTheLibraryWhileItHasTheLabel(t *testing.T) {
	runtime := rig.NewRuntime(t)
	library := filepath.Join(t.TempDir(), "libprezero.so")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(library, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("the first build")
	n := newNode(t, "16M", "", "--nri", runtime.Socket, "--preload", library)
	runtime.Plugin(1)
	number := 0
	// has is the file that a new container of a namespace preloads; "": none.
	has := func(namespace string) string {
		t.Helper()
		number++
		adjust := runtime.CreateIn(&api.PodSandbox{Namespace: namespace}, rig.Container(namespace+"-"+string(rune('a'+number%26)), 0))
		if len(adjust.GetMounts()) == 0 {
			return ""
		}
		text, err := os.ReadFile(filepath.Join(adjust.GetMounts()[0].Source, "libprezero.so"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	label := func(namespace, value string) {
		n.api.Put("/api/v1/namespaces/"+namespace, &v1.Namespace{TypeMeta: metav1.TypeMeta{Kind: "Namespace", APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"prezero.dev/preload": value}}})
	}
	if got := has("team"); got != "" {
		t.Fatalf("%q without a label", got)
	}
	label("team", "true")
	label("other", "false")
	rig.Until(t, "the namespace has the library", func() bool { return has("team") == "the first build" })
	if got := has("other"); got != "" {
		t.Errorf("%q", got)
	}
	// A container that runs has mapped the file of before.
	before, err := filepath.Glob(n.driver.Path("data/library/*/libprezero.so"))
	if err != nil || len(before) != 1 {
		t.Fatal(before, err)
	}
	write("another build")
	n.driver.Kill()
	n.driver.Start()
	runtime.Plugin(2)
	rig.Until(t, "new containers have the new library", func() bool { return has("team") == "another build" })
	if text, err := os.ReadFile(before[0]); err != nil || string(text) != "the first build" {
		t.Errorf("%v: %q", err, text)
	}
	label("team", "no")
	rig.Until(t, "the label is gone", func() bool { return has("team") == "" })
}
