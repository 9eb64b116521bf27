# Programs for aarch64 under emulation, for tests of them. A script reads this file after it has defined `left_out`.
# Needs qemu-user-static, and a kernel that lets a user namespace say who runs foreign programs (Linux 6.7).
# QEMU takes pages that were moved away by MREMAP_DONTUNMAP for unmapped: programs need `--no-move on`, or PREZERO_NO_MOVE=on.
qemu=$(command -v qemu-aarch64-static) || left_out "no qemu-aarch64-static (apt-get install qemu-user-static)"

# In a namespace of its own: the kernel hands programs for aarch64 to the emulator $0. The host notices nothing.
registers='mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
    magic="\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
    mask="\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
    [ ! -e /proc/sys/fs/binfmt_misc/prezero-aarch64 ]
    printf "%s" ":prezero-aarch64:M::$magic:$mask:$0:F" >/proc/sys/fs/binfmt_misc/register'

# inside COMMAND...: in such a namespace, in which root is this user.
inside() {
    unshare --user --map-root-user --mount --kill-child sh -ec "$registers"'
        "$@"' "$qemu" "$@"
}

# whole COMMAND...: in one in which every user has the number that it has outside, as what unpacks a system needs it. As root.
whole() {
    go=$(mktemp -d)
    mkfifo "$go/go"
    unshare --user --mount --kill-child sh -ec 'read -r _ <"$1/go"
        shift
        '"$registers"'
        exec "$@"' "$qemu" "$go" "$@" &
    namespace=$!
    until [ "$(readlink /proc/$namespace/ns/user)" != "$(readlink /proc/self/ns/user)" ]; do kill -0 $namespace; done
    for map in uid_map gid_map; do echo '0 0 65536' >/proc/$namespace/$map; done
    echo >"$go/go"
    rm -r "$go"
    wait $namespace
}
inside true 2>/dev/null || left_out "this kernel lets no user namespace register an emulator"

# Where the host's apt has Debian from. Read while the folder is the project's.
mirror=$(tests/common/mirror.sh) || mirror=

# arm_root FOLDER PACKAGES: this machine's Debian for arm64, unpacked, and nothing of it run. Needs root and mmdebstrap.
arm_root() {
    [ "$(id -u)" -eq 0 ] && command -v mmdebstrap >/dev/null || left_out "a Debian for arm64: needs root and mmdebstrap"
    mmdebstrap --quiet --arch=arm64 --variant=extract --include="$2" --aptopt='APT::Install-Recommends "false"' \
        "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$1" "$mirror" 2>"$1.said" ||
        left_out "a Debian for arm64: $(tail -n 1 "$1.said")"
    rm "$1.said"
}
