package level2

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"golang.org/x/sys/unix"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"

	"prezero.dev/kubernetes/internal/rig"
)

// With this variable set the test's program is that process of a cluster.
const role = "PREZERO_LEVEL2_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(role) == "" {
		os.Exit(m.Run())
	}
	// Its input ends with the test, however that ends.
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	if dir := os.Getenv(profiles); dir != "" {
		profile(filepath.Join(dir, fmt.Sprintf("%s-%d", os.Getenv(role), os.Getpid())))
	}
	switch os.Getenv(role) {
	case "etcd":
		etcd(os.Args[1], os.Args[2], os.Args[3])
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-scheduler":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	}
}

// With this variable set each process has a CPU profile in that directory, from its first SIGUSR1 to its second.
const profiles = "PROFILE"

func profile(name string) {
	told := make(chan os.Signal, 1)
	signal.Notify(told, unix.SIGUSR1)
	go func() {
		<-told
		file, err := os.Create(name + ".pprof")
		if err == nil {
			err = pprof.StartCPUProfile(file)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		<-told
		pprof.StopCPUProfile()
		_ = file.Close()
	}()
}

// etcd serves clients at an address, and writes to memory alone: no test outlives the machine.
func etcd(dir, clients, peers string) {
	config := embed.NewConfig()
	config.Dir, config.UnsafeNoFsync, config.LogLevel = dir, true, "error"
	config.QuotaBackendBytes = 8 * rig.GiB
	address := func(at string) []url.URL { return []url.URL{{Scheme: "http", Host: at}} }
	config.ListenClientUrls, config.AdvertiseClientUrls = address(clients), address(clients)
	config.ListenPeerUrls, config.AdvertisePeerUrls = address(peers), address(peers)
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	server, err := embed.StartEtcd(config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, <-server.Err())
	os.Exit(1)
}

// process of a cluster.
type process struct {
	t    testing.TB
	role string
	args []string
	*exec.Cmd
}

func start(t testing.TB, role string, args ...string) *process {
	t.Helper()
	p := &process{t: t, role: role, args: args}
	p.start()
	t.Cleanup(p.kill)
	return p
}

func (p *process) start() {
	p.t.Helper()
	p.Cmd = exec.Command(os.Args[0], p.args...)
	p.Env = append(os.Environ(), role+"="+p.role)
	p.Stderr = rig.NewLog(p.t, p.role)
	if _, err := p.StdinPipe(); err != nil {
		p.t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		p.t.Fatal(err)
	}
}

// kill it, as the kernel would.
func (p *process) kill() {
	_ = p.Process.Kill()
	_ = p.Wait()
}

// cpu is the processor time that it has used.
func (p *process) cpu() time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	// The name may have spaces; user and system time are the 14th and the 15th field.
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	var user, system int64
	_, _ = fmt.Sscan(fields[11]+" "+fields[12], &user, &system)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// rss is the memory that it has resident, bytes.
func (p *process) rss() int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.Process.Pid))
	var all, resident int
	_, _ = fmt.Sscan(string(text), &all, &resident)
	return resident * os.Getpagesize()
}

// free addresses on the loopback interface.
func free(t testing.TB, n int) []string {
	t.Helper()
	var all []string
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		all = append(all, listener.Addr().String())
	}
	return all
}

// key signs the tokens of service accounts.
func key(t testing.TB, file string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})))
}

func write(t testing.TB, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
