#!/bin/sh
# A guest of QEMU whose memory is a lease of prezerod. Its monitor says what its memory is; without KVM it runs anywhere.
#
# Run: sh examples/guest.sh 256M
set -eu
size=${1:-256M}
printf 'info memdev\nquit\n' | prezero claim "$size" --wait 60 -- qemu-system-x86_64 -accel tcg -m "$size" -display none -monitor stdio \
    -machine memory-backend=m -object "memory-backend-file,id=m,size=$size,mem-path={lease},share=on,align=2M"
