#!/bin/sh
# Looks for what a target of the Makefile needs. What is missing is installed through apt, where root or sudo is there;
# elsewhere one line says what is missing, and the command that brings it.
#   tests/setup.sh [--strict] GROUP...
# A target cannot do without `build`, `lint`, `python` and `deb`. Without a program of `test`, `bench` or `long` some tests are
# left out: that is an error with --strict alone. SETUP=look installs nothing.
# Each thing is looked for by what it is, not by its package: Debian 12 and 13 and Ubuntu name packages differently. Where
# several packages bring it, the first that this system's apt knows is taken.
# A server that comes with a package is neither started nor enabled.
set -eu
cd "$(dirname "$0")/.."
strict=
[ "${1-}" != --strict ] || { strict=yes && shift; }
rust=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)

# Of each group: the packages that bring it, the best first, and how it is seen to be there.
needs() {
    cat <<'TABLE'
build gcc command gcc
build libc6-dev file /usr/include/stdio.h
lint python3 command python3
python python3 command python3
python python3-venv module ensurepip
deb dpkg-dev command dpkg-buildpackage
deb debhelper command dh
test git command git
test g++ command g++
test musl-tools command musl-gcc
test binutils command readelf
test procps command pgrep
test gzip command gzip
test xz-utils command xz
test ca-certificates file /etc/ssl/certs/ca-certificates.crt
test libjemalloc2 library libjemalloc.so.2
test libmimalloc2.0|libmimalloc3 library libmimalloc.so.[23]
test libtcmalloc-minimal4t64|libtcmalloc-minimal4 library libtcmalloc_minimal.so.4
test duma file /usr/lib/libduma.so.0
test electric-fence file /usr/lib/libefence.so.0
test libdmalloc-dev library libdmalloc.so
test libtbbmalloc2 library libtbbmalloc_proxy.so.2
test libjemalloc-dev library libjemalloc.so
test libgoogle-perftools-dev library libtcmalloc.so
test valgrind command valgrind
test afl++ command afl-clang-fast
test torsocks command torsocks
test fakeroot command fakeroot
test faketime command faketime
test eatmydata command eatmydata
test libuid-wrapper library libuid_wrapper.so
test nodejs command node
test node-typescript command tsc
test sqlite3 command sqlite3
test libsqlite3-dev file /usr/include/sqlite3.h
test memcached command memcached
test default-jdk-headless|openjdk-21-jdk-headless|openjdk-17-jdk-headless command jlink
test postgresql file /usr/lib/postgresql/*/bin/postgres
test dpdk-dev library librte_eal.so
test systemd command systemctl
test redis-server command redis-server
test redis-tools command redis-cli
test stress-ng command stress-ng
test openssh-server command sshd
test openssh-client command ssh-keygen
test dpkg-dev command dpkg-source
test tmux command tmux
test bpftrace command bpftrace
test gdb command gdb
test chromium command chromium
test mmdebstrap command mmdebstrap
test lintian command lintian
test cmake command cmake
test pkg-config command pkg-config
test python3-minimal file /usr/bin/python3
test libpythonVERSION-testsuite tests test_list.py
test nginx-light|nginx-core|nginx command nginx
test php-cli command php
test php-gd phpmodule gd
test php-sqlite3 phpmodule sqlite3
test php-xml phpmodule xml
test php-mbstring phpmodule mbstring
test php-intl phpmodule intl
test openmpi-bin command mpirun
test python3-mpi4py file /usr/lib/python3/dist-packages/mpi4py
test python3-numpy file /usr/lib/python3/dist-packages/numpy
test crun command crun
test busybox-static command busybox
bench ripgrep command rg
bench python3-matplotlib file /usr/lib/python3/dist-packages/matplotlib
long mariadb-server-core command mariadbd
long mariadb-client|mariadb-client-core command mariadb-dump
long firefox-esr command firefox-esr
long wine command wine
long podman command podman
long libvirt-daemon-system command libvirtd
long libvirt-clients command virsh
long qemu-system-x86 command qemu-system-x86_64
long linux-image-cloud-amd64|linux-image-virtual kernel *
long qemu-system-arm command qemu-system-aarch64
long gcc-aarch64-linux-gnu command aarch64-linux-gnu-gcc
long libc6-dev-arm64-cross file /usr/aarch64-linux-gnu/lib/crti.o
long qemu-user-static|qemu-user command qemu-aarch64-static
TABLE
}

PATH=$PATH:/usr/sbin:/sbin
# The tests of CPython are those of the system's Python, whichever comes first in the path, or of the one that it would get.
system_python() {
    /usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null ||
        LC_ALL=C apt-cache policy python3 2>/dev/null | sed -n 's/^ *Candidate: \([0-9]*\.[0-9]*\).*/\1/p'
}
is_there() {
    case $1 in
    command) command -v "$2" >/dev/null 2>&1 ;;
    file) ls -d $2 >/dev/null 2>&1 ;;
    module) python3 -c "import $2" 2>/dev/null ;;
    library) ls /usr/lib/*/$2 /usr/lib/$2 2>/dev/null | grep -q . ;;
    phpmodule) php -m 2>/dev/null | grep -qix "$2" ;;
    kernel) ls /boot/vmlinuz-* 2>/dev/null | grep -q . ;;
    tests) [ -e "/usr/lib/python$(system_python)/test/$2" ] ;;
    esac
}
# apt_has PACKAGE: this system's apt can install it.
apt_has() { LC_ALL=C apt-cache policy "$1" 2>/dev/null | grep -q '^ *Candidate: [^(]'; }
# named PACKAGE|...: the first of these that apt knows, or the first.
named() {
    for each in $(echo "$1" | sed "s/VERSION/$(system_python)/; s/|/ /g"); do
        ! apt_has "$each" || { echo "$each" && return; }
    done
    echo "${1%%|*}" | sed "s/VERSION/$(system_python)/"
}
# missing GROUP...: the packages of these groups that are not there.
missing() {
    for group; do
        needs | while read -r of packages how what; do
            [ "$of" = "$group" ] || continue
            is_there "$how" "$what" || named "$packages"
        done
    done | sort -u
}
one_line() { tr '\n' ' ' | sed 's/ $//'; }

needed='' wished=''
for group; do
    case $group in
    build | lint | python | deb) needed="$needed $group" ;;
    test | bench | long) wished="$wished $group" ;;
    *)
        echo "setup: no group $group: give build, lint, python, deb, test, bench or long" >&2
        exit 2
        ;;
    esac
done

# by_rust: the command that brings a Rust as late as is needed.
by_rust() {
    candidate=$(LC_ALL=C apt-cache policy rustc 2>/dev/null | sed -n 's/^ *Candidate: \([0-9.]*\).*/\1/p')
    if command -v rustup >/dev/null; then
        echo "rustup default stable && rustup update stable"
    elif [ "$(printf '%s\n' "$rust" "${candidate:-0}" | sort -V | head -n 1)" = "$rust" ]; then
        echo "as root: apt-get install cargo rustc rustfmt rust-clippy"
    elif apt_has rustup; then
        echo "as root: apt-get install rustup; then: rustup default stable"
    else
        echo "curl -sSf https://sh.rustup.rs | sh -s -- -y"
    fi
}

# Rust comes first: nothing else is of use without it.
rusts=$PATH:$HOME/.cargo/bin
case " $needed " in
*" build "*)
    found=$(PATH=$rusts rustc --version 2>/dev/null | cut -d ' ' -f 2) || found=
    oldest=$(printf '%s\n' "$rust" "${found:-0}" | sort -V | head -n 1)
    if [ "$oldest" != "$rust" ]; then
        echo "setup: Rust $rust or later is missing (found: ${found:-none}): $(by_rust)" >&2
        exit 1
    fi
    ;;
esac
case " $needed " in
*" lint "*)
    for each in fmt clippy; do
        PATH=$rusts cargo $each --version >/dev/null 2>&1 || {
            echo "setup: cargo $each is missing: rustup component add rustfmt clippy; or, as root: apt-get install rustfmt rust-clippy" >&2
            exit 1
        }
    done
    ;;
esac

# install PACKAGE...: as root, without a server started or enabled. One that cannot be had keeps no other away.
install() {
    units=$(mktemp)
    ls /usr/lib/systemd/system /lib/systemd/system 2>/dev/null | grep '\.service$' | sort -u >"$units" || true
    policy=/usr/sbin/policy-rc.d
    [ ! -e $policy ] || policy=
    [ -z "$policy" ] || { printf '#!/bin/sh\nexit 101\n' | $as_root tee $policy >/dev/null && $as_root chmod 755 $policy; }
    apt="$as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -q -y"
    installed=yes
    LC_ALL=C $apt install --no-install-recommends --assume-no "$@" 2>/dev/null |
        sed -n 's/^Need to get \(.*\) of archives.*/setup: \1 to fetch/p; s/^After this operation, \(.*\) of additional.*/setup: \1 on the disk/p' >&2 || true
    $apt install --no-install-recommends "$@" >/dev/null || {
        for package; do
            $apt install --no-install-recommends "$package" >/dev/null || installed=
        done
    }
    [ -z "$policy" ] || $as_root rm -f $policy
    if command -v systemctl >/dev/null; then
        for unit in $(ls /usr/lib/systemd/system /lib/systemd/system 2>/dev/null | grep '\.service$' | sort -u | comm -13 "$units" -); do
            case $unit in
            *memcached* | *postgresql* | *redis* | *ssh* | *nginx* | *mariadb* | *libvirt* | *virt*) $as_root systemctl --quiet disable "$unit" 2>/dev/null || true ;;
            esac
        done
    fi
    rm -f "$units"
    [ -n "$installed" ]
}

# shellcheck disable=SC2086 # one word a group or a package
[ -n "$(missing $needed $wished)" ] || exit 0
as_root='' may=
if [ "$(id -u)" -eq 0 ]; then
    may=yes
elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    may=yes as_root=sudo
fi
if [ -n "$may" ] && [ "${SETUP-}" != look ] && command -v apt-get >/dev/null; then
    # Without its lists apt knows no package, and no name of one.
    $as_root apt-get -o DPkg::Lock::Timeout=300 -q -y update >/dev/null || true
    # shellcheck disable=SC2086
    packages=$(for each in $(missing $needed $wished); do ! apt_has "$each" || echo "$each"; done | one_line)
    [ -z "$packages" ] || echo "setup: installs through apt, as ${as_root:-root}: $packages" >&2
    # shellcheck disable=SC2086
    [ -z "$packages" ] || install $packages || true
fi
# shellcheck disable=SC2086
lacking=$(missing $needed | one_line)
if [ -n "$lacking" ]; then
    echo "setup: missing: $lacking. As root: apt-get install $lacking" >&2
    exit 1
fi
# What apt can bring, and what it cannot.
# shellcheck disable=SC2086
lacking=$(missing $wished) strange=
if command -v apt-cache >/dev/null; then strange=$(for each in $lacking; do apt_has "$each" || echo "$each"; done); fi
brought=$(printf '%s\n' "$lacking" | grep -vxF "${strange:-none}" | one_line) strange=$(echo "$strange" | one_line)
if [ -n "$lacking" ]; then
    [ -z "$brought" ] || echo "setup: missing, so some tests are left out: $brought. As root: apt-get install $brought" >&2
    [ -z "$strange" ] || echo "setup: not among this system's packages, so some tests are left out: $strange" >&2
    [ -z "$strict" ] || exit 1
fi
