// Command prezero-dra leases memory that is already zero to pods, through Dynamic Resource Allocation.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"prezero.dev/kubernetes/internal/driver"
	"prezero.dev/kubernetes/internal/params"
	"prezero.dev/kubernetes/internal/places"
)

const usage = `prezero-dra: memory that is already zero for pods, through Dynamic Resource Allocation

  prezero-dra [options]            serve the kubelet of this node, beside prezerod
  prezero-dra status [options]     what this node has, and which claims have it
  prezero-dra drain [options]      no new claims here; those that are here stay
  prezero-dra undrain [options]    claims again
  prezero-dra remove [options]     takes away what driver and broker left on this node, once no lease is there

Options:
`

var errNoFiles = errors.New("--files: give the directories that `files` of the broker's tenant names")

// dirs is an option that may be given several times.
type dirs []string

func (d *dirs) String() string { return strings.Join(*d, ",") }

func (d *dirs) Set(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("%q: give the absolute path of a directory", dir)
	}
	*d = append(*d, filepath.Clean(dir))
	return nil
}

// command line.
type command struct {
	driver.Options
	files      dirs
	kubeconfig string
	metrics    string
}

func main() {
	command := command{Options: driver.Options{Host: places.Host{Sys: "/sys"}}}
	flags := flag.NewFlagSet("prezero-dra", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	flags.StringVar(&command.Node, "node", os.Getenv("NODE_NAME"), "`name` of this node [$NODE_NAME]")
	flags.StringVar(&command.Socket, "socket", environment("PREZERO_SOCKET", "/run/prezero/prezerod.sock"), "`path` of prezerod's socket")
	flags.Var(&command.files, "files", "`directory` of a tmpfs or hugetlbfs, as in \"files\" of the broker's tenant; once for each size of page")
	flags.StringVar(&command.CDI, "cdi", "/var/run/cdi", "`directory` for CDI files")
	flags.StringVar(&command.Data, "data", filepath.Join(kubeletplugin.KubeletPluginsDir, params.Driver), "`directory` of the plugin")
	flags.StringVar(&command.Registry, "registry", kubeletplugin.KubeletRegistryDir, "`directory` where the kubelet looks for plugins")
	flags.DurationVar(&command.Wait, "wait", 5*time.Second, "longest `time` that preparing a claim waits for memory that is being made")
	flags.DurationVar(&command.Look, "look", 5*time.Second, "`time` between looks at pools and broker")
	flags.DurationVar(&command.Absent, "absent", 30*time.Second, "`time` without the broker after which no claim comes here")
	flags.BoolVar(&command.Allocatable, "node-allocatable", false, "have the scheduler subtract leases from the node's memory and huge pages (feature gate DRANodeAllocatableResources, Kubernetes 1.37)")
	flags.BoolVar(&command.Binding, "binding-conditions", false, "have the scheduler bind a pod once its leases are ready, and look for another node where they are refused; the driver then watches all claims (feature gate DRADeviceBindingConditions, Kubernetes 1.36)")
	flags.StringVar(&command.NRI, "nri", "/var/run/nri/nri.sock", "`path` of the container runtime's NRI socket, for limits of huge pages; \"\": none")
	flags.StringVar(&command.Library, "preload", "", "`file` of libprezero.so, which is preloaded into containers of namespaces with the label prezero.dev/preload=true; needs NRI; \"\": none")
	flags.StringVar(&command.Cgroups, "cgroups", "/sys/fs/cgroup", "`directory` of the cgroups of version 2, where containers' huge pages are counted")
	flags.StringVar(&command.kubeconfig, "kubeconfig", "", "`file` with the API server's address; without it that of the pod")
	flags.StringVar(&command.metrics, "metrics", "127.0.0.1:9465", "`address` for Prometheus; \"\": none")
	flags.StringVar(&command.Pod, "pod-uid", os.Getenv("POD_UID"), "`UID` of this pod, where another may take over while it ends [$POD_UID]")
	json := flags.Bool("log-json", false, "write the log as JSON, an object a line")
	shown := flags.Bool("version", false, "print the version, and end")
	logs := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(logs)
	flags.Var(logs.Lookup("v").Value, "v", "`number` of what the log tells besides, 0 to 10")
	words := os.Args[1:]
	verb := ""
	if len(words) > 0 && !strings.HasPrefix(words[0], "-") {
		verb, words = words[0], words[1:]
	}
	if err := flags.Parse(words); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			os.Exit(0)
		}
		os.Exit(2)
	}
	if *shown {
		fmt.Println("prezero-dra", version())
		return
	}
	if *json {
		klog.SetSlogLogger(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	}
	if err := command.run(verb, flags.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "prezero-dra: %v\n", err)
		os.Exit(1)
	}
}

func environment(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func (c command) run(verb string, rest []string) error {
	if len(rest) > 0 {
		return fmt.Errorf("%q: no such word; see prezero-dra --help", rest[0])
	}
	draining := filepath.Join(c.Data, driver.Draining)
	c.Files = c.files
	switch verb {
	case "":
		return c.serve()
	case "status":
		return status(c.Options, os.Stdout)
	case "drain":
		return mark(draining)
	case "remove":
		if len(c.Files) == 0 {
			return errNoFiles
		}
		return c.Remove()
	case "undrain":
		if err := os.Remove(draining); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return syncDir(c.Data)
	}
	return fmt.Errorf("%q: no such command; see prezero-dra --help", verb)
}

// mark makes an empty file that survives any end of the machine from here on.
func mark(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|syscall.O_NOFOLLOW, 0o640)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close(), syncDir(filepath.Dir(path)))
}

// syncDir: a name is durable with its directory.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (c command) serve() error {
	if c.Node == "" {
		return errors.New("--node: give the name of this node, or set NODE_NAME")
	}
	if len(c.Files) == 0 {
		return errNoFiles
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	config, err := c.config()
	if err != nil {
		return err
	}
	// A claim that is prepared is read and its status is written. By client-go's default of 5 requests a second it
	// waited for 200 ms for each.
	config.QPS, config.Burst = 100, 200
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.Data, 0o750); err != nil {
		return err
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&corev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	recorder := broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: "prezero-dra", Host: c.Node})
	registry := prometheus.NewRegistry()
	plugin, err := driver.New(c.Options, client, recorder, driver.NewMetrics(registry))
	if err != nil {
		return err
	}
	if c.metrics != "" {
		listener, err := net.Listen("tcp", c.metrics)
		if err != nil {
			return fmt.Errorf("--metrics: %w", err)
		}
		mux := http.NewServeMux()
		mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
		mux.HandleFunc("/metrics/prezerod", text(plugin.Broker))
		mux.HandleFunc("/healthz", probe(func() error { return plugin.Live(time.Now()) }))
		mux.HandleFunc("/readyz", probe(plugin.Ready))
		server := served(mux)
		go func() { _ = server.Serve(listener) }()
		defer server.Close()
	}
	klog.FromContext(ctx).Info("Serving", "driver", params.Driver, "node", c.Node, "files", c.Files)
	return plugin.Run(ctx, params.Driver)
}

// probe answers the kubelet: what is wrong, if anything is.
func probe(what func() error) http.HandlerFunc {
	return text(func() (string, error) { return "ok\n", what() })
}

func text(of func() (string, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		text, err := of()
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte(text))
	}
}

// version of the source that this was built of.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	text := info.Main.Version + " " + info.GoVersion
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			text += " " + setting.Value
		}
	}
	return text
}

func (c command) config() (*rest.Config, error) {
	if c.kubeconfig != "" {
		return clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("%w; run it in a pod, or give --kubeconfig", err)
	}
	return config, nil
}
