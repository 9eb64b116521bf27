#!/bin/sh
# A guest of a real libvirtd, with its memory leased by prezero-qemu: from its capabilities to its last page.
# The guest has two NUMA nodes; it writes to each of its pages, says so on its serial line, and stays.
#   tests/system/libvirt.sh DIR      where prezero, prezero-qemu and prezerod are
set -eu
bin=$(cd "$1" && pwd)
common=$(cd "$(dirname "$0")/../common" && pwd)
for needed in libvirtd virtlogd virsh qemu-system-x86_64 setpriv; do
    PATH="$PATH:/usr/sbin" command -v "$needed" >/dev/null || {
        echo "libvirt: left out: $needed is not installed"
        exit 0
    }
done
if [ "$(id -u)" -ne 0 ]; then
    echo "libvirt: left out: a user of its own needs root"
    exit 0
fi
. "$common/until.sh"
user=65534
# Short: it holds sockets.
dir=$(mktemp -d /tmp/pz.XXXXXX)
chmod 755 "$dir"
mkdir "$dir/bin" "$dir/home" "$dir/run"
cp "$bin/prezero" "$bin/prezero-qemu" "$bin/prezerod" "$dir/bin"
socket="$dir/run/prezerod.sock"
daemons=
# Words, and no function: what runs in the background is the daemon itself.
as="setpriv --reuid=$user --regid=$user --clear-groups env HOME=$dir/home XDG_RUNTIME_DIR=$dir/run"
virsh() { $as timeout 60 virsh -q -c qemu:///session "$@"; }
finish() {
    virsh destroy touch >/dev/null 2>&1 || true
    for process in $daemons; do kill "$process" 2>/dev/null || true; done
    rm -rf "$dir"
}
trap finish EXIT INT TERM
fail() {
    echo "libvirt: $1" >&2
    tail -n 20 "$dir"/home/.cache/libvirt/qemu/log/*.log "$dir/broker" >&2 2>/dev/null || true
    exit 1
}

# A kernel by the Multiboot specification, loaded at 1 MiB: header, code, and what it says.
#     mov ecx, [ebx+8]; shl ecx, 10; add ecx, 0x100000      the end of memory below its hole
#     mov edi, 0x200000; 1: mov dword [edi], 1; add edi, 4096; cmp edi, ecx; jb 1b
#     mov esi, text; mov dx, 0x3f8; 2: lodsb; test al, al; jz 3f; out dx, al; jmp 2b; 3: hlt; jmp 3b
python3 - "$dir/kernel" <<'PYTHON'
import struct, sys
base, text = 0x100000, b"touched\n\0"
code = bytes.fromhex("8b4b08c1e10a81c100001000bf00002000c7070100000081c70010000039cf72f0be")
last = bytes.fromhex("66baf803ac84c07403eeebf8f4ebfd")
code += struct.pack("<I", base + 32 + len(code) + 4 + len(last)) + last + text
magic, flags, end = 0x1BADB002, 0x10003, base + 32 + len(code)
header = struct.pack("<8I", magic, flags, -(magic + flags) & 0xffffffff, base, base, end, end, base + 32)
open(sys.argv[1], "wb").write(header + code)
PYTHON
cat >"$dir/guest.xml" <<XML
<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>touch</name>
  <memory unit='MiB'>256</memory>
  <vcpu>2</vcpu>
  <memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>
  <os><type arch='x86_64' machine='pc'>hvm</type><kernel>$dir/kernel</kernel></os>
  <cpu mode='custom'><model>qemu64</model><numa>
    <cell id='0' cpus='0' memory='128' unit='MiB'/><cell id='1' cpus='1' memory='128' unit='MiB'/>
  </numa></cpu>
  <devices>
    <emulator>$dir/bin/prezero-qemu</emulator>
    <controller type='usb' model='none'/><memballoon model='none'/>
    <serial type='file'><source path='$dir/run/serial'/></serial>
  </devices>
  <qemu:commandline>
    <qemu:env name='PREZERO_SOCKET' value='$socket'/><qemu:env name='PREZERO_QEMU_WAIT' value='60s'/>
  </qemu:commandline>
</domain>
XML
chown -R "$user:$user" "$dir/home" "$dir/run"
chmod 700 "$dir/run"
$as "$dir/bin/prezerod" --socket "$socket" 2>"$dir/broker" &
daemons=$!
until_true "prezerod" grep -q 'serving on' "$dir/broker"
for daemon in virtlogd libvirtd; do
    $as "$(PATH="$PATH:/usr/sbin" command -v "$daemon")" 2>"$dir/$daemon" &
    daemons="$daemons $!"
done
until_true "libvirtd" virsh version >"$dir/said" 2>&1

# start LEASES: a guest that runs, and has so many.
start() {
    rm -f "$dir/run/serial"
    virsh create "$dir/guest.xml" >/dev/null || fail "no guest"
    within 600 grep -q touched "$dir/run/serial" || fail "the guest does not touch its memory"
    guest=$(cat "$dir/run/libvirt/qemu/run/touch.pid")
    grep memfd:prezero "/proc/$guest/maps" >"$dir/maps" || true
    [ "$(wc -l <"$dir/maps")" -eq "$1" ] || fail "not $1 leases: $(cat "$dir/maps")"
    # The kernel maps huge pages where they begin alone.
    ! cut -d- -f1 "$dir/maps" | grep -qv '[02468ace]00000$' || fail "memory is not aligned: $(cat "$dir/maps")"
    virsh destroy touch >/dev/null || fail "the guest does not end"
}
start 2
freed() { $as env PREZERO_SOCKET="$socket" "$dir/bin/prezero" stock | grep -q 'by processes that live: nothing'; }
until_true "the leases end with the guest" freed
# Without a broker it starts all the same, and its log says why it has no lease.
sed -i "s|value='$socket'|value='$dir/none'|" "$dir/guest.xml"
start 0
log="$dir/home/.cache/libvirt/qemu/log/touch.log"
[ "$(grep -c '^prezero-qemu:' "$log")" -eq 1 ] || fail "not one line of prezero-qemu"
grep -q '^prezero-qemu: ram-node0: .*does prezerod run?' "$log" || fail "no reason in the log"
echo "libvirt: good"
