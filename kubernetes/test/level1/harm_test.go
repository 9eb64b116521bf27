package level1

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"

	"prezero.dev/kubernetes/internal/rig"
)

// capabilities are those that containerd gives by default.
var capabilities = []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID", "CAP_SETUID",
	"CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE"}

func TestAPodCanNeitherGrowItsLeaseNorWriteWhereItsSocketLies(t *testing.T) {
	for _, runtime := range []string{"runc", "crun"} {
		if _, err := exec.LookPath(runtime); err != nil {
			t.Logf("skipped: no %s; apt-get install %s", runtime, runtime)
			continue
		}
		for _, deliver := range []string{"file", "socket"} {
			for who, change := range map[string]func(*oci.Spec){"root": func(*oci.Spec) {}, "mapped": mapped} {
				const size = 16
				b := rig.NewBroker(t, "64M", "")
				l := prepare(t, b, rig.Claim(1, size, `{"deliver": "`+deliver+`", "mode": "0666"}`))
				name := fmt.Sprintf("prezero-harm-%d-%s-%s-%s", os.Getpid(), runtime, deliver, who)
				dir := bundle(t, func(spec *oci.Spec) {
					spec.Process.Args = []string{"/inside", "harm"}
					spec.Process.Capabilities = &oci.LinuxCapabilities{Bounding: capabilities, Effective: capabilities, Permitted: capabilities}
					spec.Linux.CgroupsPath = "/" + name
					change(spec)
					l.inject(spec)
				})
				out, err := exec.Command(runtime, "run", "-b", dir, name).CombinedOutput()
				if strings.Contains(string(out), "hybrid mode not supported") {
					t.Logf("skipped: %s runs on no host that has cgroups of both versions", runtime)
					l.unprepare()
					continue
				}
				if err != nil || strings.TrimSpace(string(out)) != "{}" {
					t.Errorf("%s, a %s, %s: %v: the pod could: %s", runtime, deliver, who, err, out)
				}
				if used := b.Used(); used > size*mib {
					t.Errorf("%s, a %s, %s: %d MiB are used, the claim has %d", runtime, deliver, who, used/mib, size)
				}
				l.unprepare()
			}
		}
	}
}
