# A program in a memory cgroup of its own, which is gone after it: sh limited.sh BYTES PROGRAM... (root)
set -eu
bytes=$1
shift
for place in /sys/fs/cgroup/memory:memory.limit_in_bytes /sys/fs/cgroup:memory.max; do
    group=${place%:*}/prezero-bench-$$ limit=${place#*:}
    mkdir "$group" 2>/dev/null || continue
    trap 'rmdir "$group"' EXIT
    echo "$bytes" >"$group/$limit" 2>/dev/null || { rmdir "$group"; trap - EXIT; continue; }
    (echo 0 >"$group/cgroup.procs" && exec "$@")
    exit
done
echo "no memory cgroup can be made here; run it as root" >&2
exit 1
