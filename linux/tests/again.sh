#!/bin/bash
# again.sh: does scripts/guest.sh boot again when, and only when, the emulator lost a breakpoint?
#
# A stand-in for QEMU prints a console for each boot: those that are named, and the last again and
# again. `lost` is of a boot in CI.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/qemu-system-x86_64" <<'STANDIN'
#!/bin/bash
boots=$(($(cat "$CONSOLES/boots") + 1))
echo $boots > "$CONSOLES/boots"
read -ra names < "$CONSOLES/names"
last=$((${#names[@]} - 1))
cat "$CONSOLES/${names[boots - 1 < last ? boots - 1 : last]}"
STANDIN
chmod +x "$work/qemu-system-x86_64"

begun='Booting from ROM..== cma,3 on 7.3.4-prezero x86_64'
lost='[    1.561927] Oops: int3: 0000 [#1] SMP
[    1.563859] RIP: 0010:__timekeeping_advance.constprop.0+0x42/0x5e0
[    1.564594] Code: 48 8b 05 47 60 04 01 0f <1f> 44 00 00 0f 01 f9
[    1.569041] RIP: 0010:rep_movs_alternative+0x3a/0x80
[    1.569112] Code: eb d5 cc <f3> a4 c3
[    1.576493] Kernel panic - not syncing: Fatal exception in interrupt'
console() { cat > "$work/$1"; }
printf '%s\n' "$begun" '== exit 0' | console passes
printf '%s\n' "$begun" 'cma: a page is not zero' '== exit 1' | console fails
printf '%s\n' "$begun" "$lost" | console lost
printf '%s\n' "$lost" | console early
printf '%s\n' "$begun" "${lost/0f <1f>/cc <1f>}" | console planted
printf '%s\n' "$begun" "${lost/int3: 0000/general protection fault}" | console other
printf '%s\n' "$begun" 'BUG: Bad page state in process cma' "$lost" | console second
printf '%s\n' "$begun" "${lost%%$'\n'*}" | console cut
printf '%s\n' "$begun" | console dies

# boots CONSOLES STATUS BOOTS: with these consoles guest.sh ends with STATUS after BOOTS boots.
boots() {
    local status=0 seen said
    echo "$1" > "$work/names"
    echo 0 > "$work/boots"
    CONSOLES=$work PATH=$work:$PATH "$here/../scripts/guest.sh" x86 kernel initrd cma,3 > "$work/out" 2> "$work/err" || status=$?
    seen=$(cat "$work/boots")
    said=$(grep -c 'lost a breakpoint' "$work/err" || true)
    if [ "$status $seen" != "$2 $3" ] || [ "$said" -ne $(($3 - 1 + ($2 == 70 && $3 == 3))) ]; then
        echo "again.sh: '$1': exit $status, $seen boots, said $said times; wanted $2, $3" >&2
        cat "$work/out" "$work/err" >&2
        exit 1
    fi
}
boots passes 0 1
boots fails 1 1
boots dies 70 1
boots 'lost passes' 0 2
boots 'early passes' 0 2
boots 'lost lost passes' 0 3
boots 'lost fails' 1 2
boots lost 70 3
boots 'planted passes' 70 1
boots 'other passes' 70 1
boots 'second passes' 70 1
boots 'cut passes' 70 1
