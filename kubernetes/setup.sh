#!/bin/sh
# What the driver's tests need: runc, and Go 1.26 with its modules. Without them it says so in one line and fails.
set -u
skip() {
    echo "kubernetes: skipped: $1" >&2
    exit 1
}
as_root=
[ "$(id -u)" -eq 0 ] || as_root=sudo
command -v go >/dev/null || skip "no Go; install 1.26 or later from go.dev"
command -v runc >/dev/null ||
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends runc ||
    echo "kubernetes: no runc: its containers are left out" >&2
cd "$(dirname "$0")" && go mod download || skip "its modules cannot be had; see go help modules on GOPROXY"
