#!/bin/sh
# The wheel, in a clean environment of Python's: the commands, NumPy's handler and the lease client, and no trace of it
# after `pip uninstall`.
#   tests/wheel.sh               built of target/release, for this machine
#   tests/wheel.sh --portable    built for manylinux_2_28; with root in an older Debian, too
#   tests/wheel.sh FILE          of a release
#   tests/wheel.sh --aarch64     built for manylinux_2_28_aarch64, and used in a Debian for arm64 under emulation
set -eu
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
root=
finish() {
    [ -z "$root" ] || leave_root
    rm -rf "$dir"
}
trap finish EXIT INT TERM
fail() {
    echo "wheel: $1" >&2
    exit 1
}
left_out() {
    echo "wheel: left out: $1"
    exit 0
}
. tests/common/root.sh

if [ "${1-}" = --aarch64 ]; then
    . tests/common/aarch64.sh
    rustc --print target-libdir --target aarch64-unknown-linux-gnu 2>/dev/null | xargs ls >/dev/null 2>&1 ||
        left_out "no Rust for aarch64 (rustup target add aarch64-unknown-linux-gnu)"
    command -v aarch64-linux-gnu-strip >/dev/null || left_out "no aarch64-linux-gnu-strip (apt-get install gcc-aarch64-linux-gnu)"
    packaging/wheel.sh aarch64 >"$dir/log" 2>&1 || fail "packaging/wheel.sh: $(tail -n 5 "$dir/log")"
    # NumPy needs libstdc++.
    arm_root "$dir/arm" python3-venv,libstdc++6
    mkdir -p "$dir/arm/proc" "$dir/arm/dev" "$dir/arm/tmp"
    wheel=$(cd target/wheel && ls -- *aarch64.whl)
    cp "target/wheel/$wheel" "$dir/arm/tmp/"
    online "$dir/arm"
    # arm WHAT COMMAND...: there.
    arm() {
        what=$1
        shift
        PREZERO_NO_MOVE=on PYTHONDONTWRITEBYTECODE=1 inside sh -ec 'mount --rbind /proc "$0/proc"; mount --rbind /dev "$0/dev"
            exec chroot "$0" "$@"' "$dir/arm" "$@" >"$dir/out" 2>"$dir/said" || fail "aarch64: $what: $(tail -n 5 "$dir/said")"
    }
    arm "a virtual environment" /usr/bin/python3 -m venv /venv
    arm "pip install" /venv/bin/python3 -m pip install --quiet --no-index "/tmp/$wheel"
    for each in prezero prezerod; do
        arm $each /venv/bin/$each --version
        grep -q "^$each " "$dir/out" || fail "aarch64: $each --version says $(cat "$dir/out")"
    done
    arm "prezero engines" /venv/bin/prezero engines
    grep -q dc-zva "$dir/out" || fail "aarch64: no engine dc-zva: $(cat "$dir/out")"
    arm "prezero run" /venv/bin/prezero run --verify full -- /venv/bin/python3 -c 'print(sum(bytes(1 << 24)))'
    grep -qx 0 "$dir/out" && grep -q '^prezero: ' "$dir/said" || fail "aarch64: prezero run says $(cat "$dir/out" "$dir/said")"
    echo "wheel: aarch64: $(grep '^prezero: ' "$dir/said" | head -n 1)"
    arm "NumPy" /venv/bin/python3 -m pip install --quiet numpy
    arm "prezero.numpy" /venv/bin/python3 -c '
import numpy, prezero.numpy
assert prezero.numpy.enable()
assert prezero.numpy.owns(numpy.zeros(1 << 20)) and not numpy.zeros(1 << 20).any()'
    echo "wheel: $wheel: good"
    exit 0
fi

wheel=
case ${1-} in
*.whl) wheel=$(realpath "$1") ;;
--portable) packaging/wheel.sh >"$dir/log" 2>&1 ;;
*) packaging/wheel.sh --native >"$dir/log" 2>&1 ;;
esac || fail "packaging/wheel.sh: $(tail -n 5 "$dir/log")"
[ -n "$wheel" ] || wheel=$(ls target/wheel/*.whl)
python3 -m venv "$dir/venv"
python=$dir/venv/bin/python3
(cd "$dir/venv" && find . -not -name '*.pyc' -not -name __pycache__ | sort) >"$dir/before"
"$python" -m pip install --quiet --disable-pip-version-check "$wheel"
(cd "$dir/venv" && find . -not -name '*.pyc' -not -name __pycache__ | sort) >"$dir/after"
for file in bin/prezero bin/prezerod lib/prezero/libprezero.so; do
    [ -s "$dir/venv/$file" ] || fail "no $file"
    if readelf -SW "$dir/venv/$file" | grep -q '\.debug_info\|\.symtab'; then fail "$file is not stripped"; fi
done

# As its user would, without an environment of the repository's.
cd "$dir"
unset PREZERO_LIB
"$dir/venv/bin/prezero" --version | grep -q '^prezero ' || fail "prezero --version"
"$dir/venv/bin/prezerod" --version | grep -q '^prezerod ' || fail "prezerod --version"
# By Python, where PATH lacks the wheel's folder; exit status and mistakes are the command's.
"$python" -m prezero --version | grep -q '^prezero ' || fail "python3 -m prezero"
"$python" -m prezero run -- sh -c 'exit 7' 2>"$dir/said" && status=0 || status=$?
[ $status -eq 7 ] || fail "python3 -m prezero run ends with $status: $(cat "$dir/said")"
"$python" -m prezero nosuch 2>"$dir/said" && status=0 || status=$?
[ $status -eq 2 ] && grep -q nosuch "$dir/said" || fail "python3 -m prezero nosuch ends with $status: $(cat "$dir/said")"
"$dir/venv/bin/prezero" run -- "$python" -c '
for _ in range(50):
    blocks = [bytearray(4 << 20) for _ in range(4)]
print("good")' >"$dir/out" 2>"$dir/said" || fail "prezero run: $(cat "$dir/said")"
grep -qx good "$dir/out" && grep -q '^prezero: ' "$dir/said" || fail "prezero run says $(cat "$dir/out" "$dir/said")"
"$python" -c 'import prezero_lease' || fail "the lease client"
if "$python" -c 'import prezero.numpy' 2>"$dir/said"; then fail "NumPy is there already"; fi
"$python" -m pip install --quiet --disable-pip-version-check numpy
"$python" -c '
import numpy, prezero.numpy
assert prezero.numpy.enable()
assert prezero.numpy.owns(numpy.zeros(1 << 20)) and not numpy.zeros(1 << 20).any()' || fail "prezero.numpy"

# A kernel for notebooks, used as a notebook does.
if "$dir/venv/bin/prezero" jupyter install --python "$python" --prefix "$dir/venv" 2>"$dir/said"; then fail "a kernel without ipykernel"; fi
grep -q 'm pip install ipykernel$' "$dir/said" || fail "jupyter install says $(cat "$dir/said")"
"$python" -m pip install --quiet --disable-pip-version-check ipykernel
"$dir/venv/bin/prezero" jupyter install --python "$python" --prefix "$dir/venv" >"$dir/said" || fail "jupyter install"
cat >"$dir/notebook.py" <<'PYTHON'
from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel(kernel_name="prezero")
try:
    said = []
    client.execute_interactive("""
import ctypes
print(hasattr(ctypes.CDLL(None), "prezero_zalloc"), sum(bytes(1 << 24)))
""", output_hook=lambda message: said.append(message["content"].get("text", "")))
    print("".join(said).strip())
finally:
    client.stop_channels()
    manager.shutdown_kernel()
PYTHON
[ "$("$python" "$dir/notebook.py" 2>"$dir/said")" = 'True 0' ] || fail "the kernel of a notebook"
rm -r "$dir/venv/share/jupyter/kernels/prezero"

"$python" -m pip uninstall --quiet --yes prezero
for file in $(comm -13 "$dir/before" "$dir/after"); do
    [ ! -f "$dir/venv/$file" ] || fail "pip uninstall leaves $file"
done
cd - >/dev/null

# An older glibc, and an older Python: those of the oldest Debian that the mirrors still have.
if [ "${1-}" = --portable ] && [ "$(id -u)" -eq 0 ] && command -v mmdebstrap >/dev/null; then
    if make_root minbase python3-pip bullseye; then
        cp "$wheel" "$root/tmp/"
        chroot "$root" sh -c "pip3 install --quiet --no-index /tmp/*.whl && prezero run -- python3 -c 'print(sum(bytes(1 << 24)))'" \
            >"$dir/out" 2>"$dir/said" || fail "Debian 11: $(cat "$dir/said")"
        grep -qx 0 "$dir/out" && grep -q '^prezero: ' "$dir/said" || fail "Debian 11: $(cat "$dir/out" "$dir/said")"
        echo "wheel: works on Debian 11: $(chroot "$root" ldd --version | head -n 1)"
    else
        echo "wheel: no Debian 11 to be had"
    fi
fi
echo "wheel: ${wheel##*/}: good"
