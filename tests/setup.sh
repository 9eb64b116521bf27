#!/bin/sh
# Debian packages that the tests and the benchmarks use: a C compiler, Python with venv and
# its regression tests, the peers of the grid, and the programs that are run for real.
#   tests/setup.sh [long]      long: also what only `make test-long` uses
set -eu
as_root=
[ "$(id -u)" -eq 0 ] || as_root=sudo
install() {
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"
}
$as_root apt-get update -q
install gcc libc6-dev musl-tools make git python3 python3-venv gzip xz-utils \
    libjemalloc2 libmimalloc2.0 libtcmalloc-minimal4
# The same to be linked with, and who looks at every block.
install libjemalloc-dev libgoogle-perftools-dev valgrind
# What `prezero bench real` runs; its Python programs need numpy, scipy and pandas besides.
install g++ nodejs ripgrep sqlite3
# What `prezero claim` and `place` are tried with; QEMU too where it is installed. tests/system/systemd.sh
# runs the systemd that is there.
install memcached openjdk-17-jdk-headless postgresql-15 dpdk-dev systemd
# What tests/programs/matrix.py runs besides; dpkg-dev unpacks the sources of the programs that it builds.
install redis-server node-typescript stress-ng libsqlite3-dev dpkg-dev openssh-server openssh-client
install nginx-light php-cli php-gd php-sqlite3 php-xml php-mbstring php-intl openmpi-bin python3-mpi4py
# What a live process, its probes, the report and the package are looked at with.
install tmux bpftrace binutils gdb procps chromium mmdebstrap
# Containers that are handed a lease.
install crun busybox-static
# CPython's own tests come in a package named after the version.
install "libpython$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')-testsuite"
if [ "${1:-}" = long ]; then
    install mariadb-server-core mariadb-client podman
    # Guests of libvirt, and one that is wiped: a kernel in /boot.
    install libvirt-daemon-system libvirt-clients qemu-system-x86 linux-image-cloud-amd64
fi
