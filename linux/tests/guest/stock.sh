# Sourced by guest scripts: the series' knobs, where the kernel has the series.
patched() { [ -e /proc/sys/vm/prezero_order ]; }
prezero_never() { ! patched || echo never > /proc/sys/vm/prezero_order; }
counter() { awk -v name="$1" '$1 == name { print $2; found = 1 } END { if (!found) print 0 }' /proc/vmstat; }
# kprezerod clears all that is free, then rests: no more of it is zero for longer than it naps (2 s).
stock_fill() {
    patched || { echo "no stock: the kernel has not the series"; exit 1; }
    echo 1000000 > /sys/kernel/debug/prezero/load
    echo 0 > /sys/kernel/debug/prezero/stop
    echo 0 > /proc/sys/vm/prezero_order
    last=-1 same=0
    for _ in $(seq 240); do
        now=$(counter nr_free_zeroed)
        if [ "$now" -eq "$last" ] && [ "$now" -gt 0 ]; then same=$((same + 1)); else same=0; fi
        [ "$same" -lt 6 ] || break
        last=$now
        sleep 0.5
    done
    prezero_never
}
