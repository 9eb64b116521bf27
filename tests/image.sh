#!/bin/sh
# packaging/Containerfile: its image is built, and programs run in it under prezero. Where no registry answers, its base
# images are made of Debian's packages; Rust and the crates are this machine's then.
#   tests/image.sh
set -eu
cd "$(dirname "$0")/.."
top=$PWD
for needed in podman mmdebstrap; do
    command -v "$needed" >/dev/null || { echo "image: left out: $needed is not installed"; exit 0; }
done
if [ "$(id -u)" -ne 0 ]; then
    echo "image: left out: not root"
    exit 0
fi
dir=$(mktemp -d)
root=
finish() {
    [ -z "$root" ] || leave_root
    podman --root "$dir/podman" --runroot "$dir/run" rm --all --force >/dev/null 2>&1 || true
    umount -R "$dir/podman/overlay" 2>/dev/null || true
    rm -rf --one-file-system "$dir"
}
trap finish EXIT INT TERM
fail() {
    echo "image: $1" >&2
    [ ! -s "$dir/said" ] || tail -n 20 "$dir/said" >&2
    exit 1
}
. tests/common/root.sh
podman() { tests/common/apart.sh podman --root "$dir/podman" --runroot "$dir/run" --cgroup-manager cgroupfs --events-backend none "$@"; }

# base NAME PACKAGES [CHANGE...]: the image of this name, of a bare Debian with these packages.
base() {
    name=$1 packages=$2
    shift 2
    make_root minbase "$packages"
    tar -C "$root" --one-file-system -cf - . | podman import --quiet "$@" - "$name" >"$dir/said" 2>&1 || fail "podman import $name"
    leave_root
    root=
}
rust=$(sed -n 's/^FROM \(.*\) AS .*/\1/p' packaging/Containerfile)
program=$(sed -n 's/^FROM \([^ ]*\)$/\1/p' packaging/Containerfile)
volumes=
if podman pull --quiet "$rust" >"$dir/said" 2>&1 && podman pull --quiet "$program" >"$dir/said" 2>&1; then
    of="the registry's base images"
else
    of="base images of Debian's packages"
    cargo_home=${CARGO_HOME:-$HOME/.cargo} rustup_home=${RUSTUP_HOME:-$HOME/.rustup}
    [ -x "$cargo_home/bin/cargo" ] && [ -d "$rustup_home" ] || { echo "image: left out: no registry, and no Rust of rustup's"; exit 0; }
    base "$rust" gcc,libc6-dev,make,git,ca-certificates \
        --change 'ENV PATH=/usr/local/cargo/bin:/usr/bin:/bin:/usr/sbin:/sbin' --change 'ENV CARGO_HOME=/usr/local/cargo' \
        --change 'ENV RUSTUP_HOME=/usr/local/rustup'
    base "$program" python3
    volumes="-v $cargo_home:/usr/local/cargo -v $rustup_home:/usr/local/rustup"
fi
# What a build of earlier left is used again.
mkdir -p target/image
began=$(date +%s)
# shellcheck disable=SC2086 # words
podman build --pull=never --isolation chroot --network host $volumes -v "$top/target/image:/src/target" \
    -f packaging/Containerfile -t mine . >"$dir/said" 2>&1 || fail "podman build"
echo "image: built in $(($(date +%s) - began)) s of $of"

run() {
    podman run --rm --network none --cgroups disabled --log-driver none --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 \
        mine "$@" >"$dir/out" 2>"$dir/said"
}
run true || fail "podman run"
run python3 -c '
for _ in range(50):
    blocks = [bytearray(4 << 20) for _ in range(4)]
print(sum(blocks[0]))' || fail "podman run python3"
grep -qx 0 "$dir/out" && grep -q '^prezero: ' "$dir/said" || fail "the program says $(cat "$dir/out")"
echo "image: $(grep '^prezero: ' "$dir/said" | head -n 1)"
status=0
run python3 -c 'import sys; sys.exit(7)' || status=$?
[ $status -eq 7 ] || fail "a program that ends with 7 ends with $status"
echo "image: good"
