#!/bin/sh
# Snapshots of a guest that wrote to its memory and freed it: as it is, and after `prezero wipe`. Compressed, the second is small.
# The guest consists of a kernel, busybox and prezero.
#
# Run: sh examples/snapshot.sh
set -eu
kernel=${1:-$(ls -t /boot/vmlinuz-* | head -n 1)}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
prezero=$(command -v prezero)

# snapshot NAME COMMAND: what the guest's memory is after the command, compressed; its size.
snapshot() {
    rm -rf "$dir/guest"
    mkdir -p "$dir/guest/bin" "$dir/guest/proc" "$dir/guest/sys" "$dir/guest/tmp" "$dir/guest/dev"
    for file in $(ldd "$prezero" | grep -o '/[^ ]*'); do install -D "$file" "$dir/guest$file"; done
    cp "$prezero" "$(command -v busybox)" "$dir/guest/bin/"
    cat >"$dir/guest/init" <<INIT
#!/bin/busybox sh
for each in proc sysfs:sys tmpfs:tmp devtmpfs:dev; do busybox mount -t \${each%:*} none /\${each#*:}; done
busybox dd if=/dev/urandom of=/tmp/file bs=1M count=60 2>/dev/null; busybox rm /tmp/file
$2; echo "status \$?"
exec busybox sleep 1000
INIT
    chmod 755 "$dir/guest/init"
    (cd "$dir/guest" && find . | busybox cpio -o -H newc 2>/dev/null) >"$dir/initrd"
    : >"$dir/serial"
    {
        until grep -q 'status [0-9]' "$dir/serial"; do sleep 0.5; done
        printf 'dump-guest-memory %s\nquit\n' "$dir/memory"
    } | qemu-system-x86_64 -accel tcg -cpu max -m 256M -nodefaults -nographic -no-reboot -monitor stdio -serial "file:$dir/serial" \
        -kernel "$kernel" -initrd "$dir/initrd" -append 'console=ttyS0 quiet rdinit=/init' >/dev/null
    echo "$1: $(($(gzip -1c "$dir/memory" | wc -c) >> 20)) MiB"
}
snapshot "as it is" true
snapshot "wiped" "/bin/prezero wipe"
