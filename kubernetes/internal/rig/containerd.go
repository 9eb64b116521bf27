package rig

import "fmt"

// Containerd is where one has its files.
type Containerd struct {
	// Root has all of them, and the socket containerd.sock.
	Root string
	// CDI is the directory of CDI files.
	CDI string
	// NRI is its socket for plugins.
	NRI string
}

// Config of one that has no network of its own, and takes no image from a registry.
func (c Containerd) Config() string {
	return fmt.Sprintf(`version = 3
root = "%[1]s/root"
state = "%[1]s/state"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp", "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.erofs", "io.containerd.differ.v1.erofs"]
[grpc]
address = "%[1]s/containerd.sock"
[ttrpc]
address = "%[1]s/ttrpc.sock"
[plugins."io.containerd.cri.v1.images"]
snapshotter = "native"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "%[2]s"
[plugins."io.containerd.cri.v1.runtime"]
cdi_spec_dirs = ["%[3]s"]
# A test's containerd may itself be less than root of the machine.
restrict_oom_score_adj = true
# Without it containerd drops the limits of huge pages.
disable_hugetlb_controller = false
[plugins."io.containerd.cri.v1.runtime".cni]
conf_dir = "%[1]s/cni"
[plugins."io.containerd.nri.v1.nri"]
disable = false
socket_path = "%[4]s"
plugin_path = "%[1]s/nri/plugins"
plugin_config_path = "%[1]s/nri/conf.d"
`, c.Root, Image, c.CDI, c.NRI)
}
