#!/bin/sh
# Leases in containers of crun, and of podman where it is: handed on as descriptor 3, and leased from within.
#   tests/system/containers.sh DIR      where prezero and prezerod are
set -eu
bin=$(cd "$1" && pwd)
common=$(cd "$(dirname "$0")/../common" && pwd)
for needed in crun busybox; do
    command -v "$needed" >/dev/null || { echo "containers: left out: $needed is not installed"; exit 0; }
done
if [ "$(id -u)" -ne 0 ]; then
    echo "containers: left out: not root"
    exit 0
fi
dir=$(mktemp -d)
mkdir "$dir/run" "$dir/state" "$dir/bundle"
export PREZERO_SOCKET="$dir/run/s"
broker=
finish() {
    [ -z "$broker" ] || kill "$broker" 2>/dev/null || true
    # At its end it writes its state there.
    [ -z "$broker" ] || wait "$broker" 2>/dev/null || true
    rm -rf "$dir"
}
trap finish EXIT INT TERM
fail() {
    echo "containers: $1" >&2
    cat "$dir/said" "$dir/log" >&2 2>/dev/null || true
    exit 1
}
. "$common/until.sh"
# The lease is the first descriptor that is free.
exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-

# A root of busybox and prezero.
root="$dir/bundle/rootfs"
mkdir -p "$root/bin" "$root/proc" "$root/dev" "$root/tmp" "$root/run/prezero" "$root/etc"
cp "$(command -v busybox)" "$root/bin/busybox"
ln -s busybox "$root/bin/sh"
cp "$bin/prezero" "$root/bin/prezero"
ldd "$bin/prezero" | grep -o '/[^ ]* (0x' | while read -r library _; do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
done
# container COMMAND: writes the bundle's configuration.
container() {
    python3 - "$dir" "$1" >"$dir/bundle/config.json" <<'PYTHON'
import json, sys
dir, command = sys.argv[1:]
env = ["PATH=/bin", "PREZERO_LEASE_FD=3", "PREZERO_SOCKET=/run/prezero/s"]
mounts = [{"destination": "/proc", "type": "proc", "source": "proc"},
          {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
          {"destination": "/run/prezero", "type": "bind", "source": f"{dir}/run", "options": ["bind", "ro"]}]
process = {"terminal": False, "user": {"uid": 0, "gid": 0}, "args": ["sh", "-c", command], "env": env, "cwd": "/"}
namespaces = [{"type": kind} for kind in ("mount", "ipc", "uts")]
print(json.dumps({"ociVersion": "1.0.2", "process": process, "root": {"path": "rootfs"}, "hostname": "container",
                  "mounts": mounts, "linux": {"namespaces": namespaces}}))
PYTHON
}

apart=$common/apart.sh

"$bin/prezerod" --socket "$PREZERO_SOCKET" 2>"$dir/log" &
broker=$!
until_true "prezerod" grep -q 'serving on' "$dir/log"
container true
crun="$apart crun --root $dir/state --cgroup-manager=disabled run -b $dir/bundle"
$crun pz-none >"$dir/said" 2>&1 || {
    echo "containers: left out: crun runs nothing here: $(tail -n 1 "$dir/said")"
    exit 0
}
handed='busybox cmp -n 67108864 /proc/self/fd/$PREZERO_LEASE_FD /dev/zero &&
    [ "$(busybox stat -Lc %s /proc/self/fd/3)" = 67108864 ]'
within='prezero claim 64M -- busybox cmp -n 67108864 {lease} /dev/zero'

container "$handed"
# shellcheck disable=SC2086 # words
"$bin/prezero" claim 64M -- $crun --preserve-fds 1 pz-handed >"$dir/said" 2>&1 || fail "a lease that is handed on to crun"
container "$within"
$crun pz-within >"$dir/said" 2>&1 || fail "a lease from within a container of crun"
echo "containers: crun: good"

if ! command -v podman >/dev/null; then
    echo "containers: podman is not installed"
    exit 0
fi
podman="$apart podman --root $dir/podman --runroot $dir/podman-run --storage-driver vfs --cgroup-manager cgroupfs
    --events-backend none --runtime crun run --rm --network none --cgroups disabled --log-driver none --ulimit nofile=1024:1024
    --ulimit nproc=1024:1024"
$podman --rootfs "$root" busybox true >"$dir/said" 2>&1 || {
    echo "containers: podman: left out: it runs nothing here: $(tail -n 1 "$dir/said")"
    exit 0
}
# shellcheck disable=SC2086 # words
"$bin/prezero" claim 64M -- $podman --preserve-fds 1 -e PREZERO_LEASE_FD=3 --rootfs "$root" \
    sh -c "$handed" >"$dir/said" 2>&1 || fail "a lease that is handed on to podman"
$podman -v "$dir/run:/run/prezero" -e PREZERO_SOCKET=/run/prezero/s --rootfs "$root" \
    sh -c "$within" >"$dir/said" 2>&1 || fail "a lease from within a container of podman"
echo "containers: podman: good"
