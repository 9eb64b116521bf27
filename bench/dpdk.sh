# testpmd until it has ended, with its own pages or with placed ones, on a hugetlbfs of its own (root):
#   sh dpdk.sh READY PREZERO MIB own|placed      READY is bench/ready.py
set -eu
ready=$1 prezero=$2 mib=$3 how=$4
dir=$(mktemp -d)
mount -t hugetlbfs -o pagesize=2M none "$dir"
trap 'rm -f "$dir"/*; umount "$dir"; rmdir "$dir"' EXIT
[ "$how" = own ] || "$prezero" place dpdk "${mib}M" --dir "$dir" >/dev/null
case $how in own) unlink=always ;; *) unlink=never ;; esac
python3 "$ready" quits dpdk-testpmd --no-pci --no-telemetry --lcores 0@0,1@0 --huge-dir "$dir" -m "$mib" --vdev=net_null0 \
    --huge-unlink=$unlink -- -i --total-num-mbufs=4096
