#!/bin/bash
# installed.sh BUILD [PREZERO]: a Debian guest installs the kernel from the apt repository and boots it.
#
# The kernel is small.config's. The guest is this machine's release of Debian, on a disk with GRUB, under QEMU without
# KVM: guest/install runs on Debian's own kernel, guest/check on ours. With PREZERO, a folder, prezero is tried in it.
set -euo pipefail
build=$1 prezero=${2:+$(realpath "$2")}
here=$(cd "$(dirname "$0")" && pwd)
linux=$(cd "$here/../.." && pwd)
left_out() { echo "test-installed: left out: $*"; exit 0; }
fail() { echo "test-installed: $*" >&2; exit 1; }
[ "$(id -u)" -eq 0 ] || left_out "takes root, for a Debian root"
dir=$build/deb/installed
rm -rf "$dir"
mkdir -p "$dir"

for each in populate activate; do
    gcc -O2 -Wall -Wextra -Werror -Wno-format-zero-length -o "$dir/$each" "$here/guest/$each.c"
done
# The builder's part: one command, with a key of this test.
export GNUPGHOME=$dir/gnupg
root=
finish() {
    gpgconf --kill gpg-agent
    [ -z "$root" ] || leave_root
    rm -rf "$dir/disk" "$dir/root"
}
trap finish EXIT
mkdir -m 700 "$GNUPGHOME"
gpg --batch --quiet --passphrase '' --quick-generate-key builder@example.org ed25519 sign never 2> /dev/null
make -s -C "$linux" apt BUILD="$build" KEY=builder@example.org APT="$dir/apt" URL=file:/srv/apt \
    FLAVOUR=small DEB_CONFIG="$build/deb/small.config" DIFFERENT=

# Kept: `rm` renews it.
debian=$build/deb/debian.tar
if [ ! -e "$debian" ]; then
    cd "$linux/.."
    # shellcheck source=../../../tests/common/root.sh
    . tests/common/root.sh
    make_root minbase systemd-sysv,udev,procps,kmod,initramfs-tools,zstd,grub-pc,linux-image-cloud-amd64
    rm -rf "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/* "$root"/var/cache/apt/archives/*.deb
    tar -C "$root" --one-file-system -c . > "$debian.part"
    leave_root
    root=
    mv "$debian.part" "$debian"
fi
tree=$dir/root
mkdir "$tree"
tar -C "$tree" -xpf "$debian" --numeric-owner
mkdir -p "$tree/srv" "$tree/try/prezero"
cp -a "$dir/apt" "$tree/srv/apt"
cp "$here/guest/install" "$here/guest/check" "$here/guest/measure" "$dir/populate" "$dir/activate" "$tree/try/"
if [ -n "$prezero" ] && [ -x "$prezero/prezero" ] && [ -x "$prezero/prezerod" ]; then
    cp -L "$prezero"/prezero "$prezero"/prezerod "$prezero"/libprezero*.so "$tree/try/prezero/"
fi
cat > "$tree/etc/default/grub" <<'GRUB'
GRUB_TIMEOUT=0
GRUB_TERMINAL=serial
GRUB_CMDLINE_LINUX="console=ttyS0 quiet no_timer_check panic=-1"
GRUB_DISABLE_OS_PROBER=true
GRUB
# What the disk takes is built in; to look for all other modules takes an emulator minutes.
echo MODULES=list > "$tree/etc/initramfs-tools/conf.d/try"
echo "/dev/vda1 / ext4 defaults 0 1" > "$tree/etc/fstab"
ln -sf /dev/null "$tree/etc/systemd/system/serial-getty@ttyS0.service"
mkdir -p "$tree/etc/systemd/system/multi-user.target.wants"
cat > "$tree/etc/systemd/system/check.service" <<'UNIT'
[Unit]
After=multi-user.target
[Service]
Type=idle
ExecStart=/try/check
UNIT
ln -s ../check.service "$tree/etc/systemd/system/multi-user.target.wants/check.service"
cp "$tree"/boot/vmlinuz-* "$dir/vmlinuz"
cp "$tree"/boot/initrd.img-* "$dir/initrd"

# A disk with one partition behind the first MiB, where GRUB puts itself.
size=3072
truncate -s ${size}M "$dir/disk"
/sbin/mke2fs -q -t ext4 -d "$tree" -E offset=1048576 "$dir/disk" $((size - 1))m
python3 - "$dir/disk" $((size - 1)) <<'MBR'
import struct
import sys
entry = struct.pack("<B3sB3sII", 0x80, b"\xfe\xff\xff", 0x83, b"\xfe\xff\xff", 2048, int(sys.argv[2]) << 11)
with open(sys.argv[1], "r+b") as disk:
    disk.write(bytes(440) + b"try!" + bytes(2) + entry + bytes(48) + b"\x55\xaa")
MBR
rm -rf "$tree"

# boot NAME ARGUMENTS...: to its end; its own exit status.
boot() {
    local log=$dir/$1.log code
    shift
    timeout -k 5 "${GUEST_TIMEOUT:-3600}" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -m 1280 -smp 2 -nographic \
        -no-reboot -nodefaults -serial mon:stdio -drive "file=$dir/disk,if=virtio,format=raw,cache=unsafe" "$@" \
        < /dev/null 2>&1 | sed -u 's/\r//g; s/\x1b\[[?0-9;]*[a-zA-Z]//g; s/\x1bc//g' | tee "$log" || true
    code=$(sed -n 's/^== exit \([0-9]*\)$/\1/p' "$log" | tail -n 1)
    [ "${code:-70}" -eq 0 ]
}
boot install -kernel "$dir/vmlinuz" -initrd "$dir/initrd" \
    -append "root=/dev/vda1 rw console=ttyS0 quiet no_timer_check panic=-1 init=/try/install" || fail "the installation"
boot check || fail "the installed system; $dir/check.log"
echo "test-installed: good"
