# A Debian of its own, without anything that is not asked for, for tests that install something. A script reads this file
# after it has defined `fail`, and calls `leave_root` when it ends. Needs root and mmdebstrap, and the host's own package
# sources.

# Where the host's apt has Debian from. Read while the folder is the project's.
mirror=$(tests/common/mirror.sh) || mirror=

# make_root VARIANT PACKAGES [CODENAME]: makes it, in $root; of another release than the host's only if that can be had.
make_root() {
    root=$(mktemp -d)
    if [ -n "${3-}" ]; then
        echo "deb $mirror $3 main" >"$root.list"
        mmdebstrap --quiet --variant="$1" --include="$2" "$3" "$root" - <"$root.list" 2>/dev/null || {
            rm -rf "$root.list" "$root"
            root=
            return 1
        }
    else
        make_like_host "$@"
    fi
    rm -f "$root.list"
    enter_root
}

# enter_root: what every root has of the kernel.
enter_root() {
    chmod 755 "$root"
    mkdir -p "$root/dev/shm"
    mount -t proc proc "$root/proc"
    mount -t sysfs -o ro sysfs "$root/sys"
    mount -t tmpfs tmpfs "$root/dev/shm"
}

make_like_host() {
    sources=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null || true)
    deb822=$(cat /etc/apt/sources.list.d/*.sources 2>/dev/null || true)
    printf '%s\n' "$sources" | grep '^deb .*debian' >"$root.list" || true
    [ -s "$root.list" ] || printf '%s\n' "$deb822" >"$root.list"
    codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
    mmdebstrap --quiet --variant="$1" ${2:+--include="$2"} --aptopt='APT::Install-Recommends "false"' "$codename" "$root" - \
        <"$root.list" || fail "no clean root: mmdebstrap"
}

# share FOLDER [OTHER]: the host's own, at the same place; or another of the host's there.
share() {
    mkdir -p "$root$1"
    mount --bind "${2:-$1}" "$root$1"
    shared="$1 ${shared-}"
}

# online FOLDER: a root there reaches packages as the host does, with its names and certificates.
online() {
    mkdir -p "$1/etc/ssl/certs"
    cp /etc/resolv.conf /etc/hosts "$1/etc/"
    cp -L /etc/ssl/certs/ca-certificates.crt "$1/etc/ssl/certs/"
}

leave_root() {
    for folder in ${shared-}; do umount "$root$folder" 2>/dev/null || true; done
    for folder in proc sys dev/shm; do umount "$root/$folder" 2>/dev/null || true; done
    rm -rf --one-file-system "$root"
}
