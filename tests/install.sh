#!/bin/sh
# `make install` into a folder of its own, and `make uninstall`: nothing is left, and what others put there stays.
set -eu
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() {
    echo "install: $1" >&2
    exit 1
}
quietly() { make --no-print-directory "$@" >"$dir/log" 2>&1 || fail "make $*: $(tail -n 5 "$dir/log")"; }
everything() { (cd "$1" && find . | sort); }

mkdir -p "$dir/root/opt/zero/share/man/man1" "$dir/root/opt/zero/lib"
touch "$dir/root/opt/zero/share/man/man1/others.1"
everything "$dir/root" >"$dir/before"
# As `sudo make install` does it: with no cargo in the path, and none at home.
env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME="$dir" SETUP=look make --no-print-directory install DESTDIR="$dir/root" PREFIX=/opt/zero \
    >"$dir/log" 2>&1 || fail "make install without Rust: $(tail -n 5 "$dir/log")"
everything "$dir/root" >"$dir/installed"
for file in bin/prezero bin/prezerod lib/prezero/libprezero.so include/prezero.h share/man/man1/prezero.1; do
    [ -s "$dir/root/opt/zero/$file" ] || fail "no $file"
done
# Each command has its man page, and each of its own commands.
pages=$dir/root/opt/zero/share/man
for command in $("$dir/root/opt/zero/bin/prezero" --help | sed -n '/^Commands/,/^$/s/^  \([a-z]*\) .*/\1/p' | grep -vx help) \
    qemu ctl-set place-dpdk jupyter-install bench-grid; do
    grep -q '^\.SH SYNOPSIS' "$pages/man1/prezero-$command.1" || fail "no man page of prezero $command"
done
[ -s "$pages/man1/prezero.1" ] && [ -s "$pages/man8/prezerod.8" ] || fail "no man page of prezero or prezerod"
grep -q '^ExecStart=/opt/zero/bin/prezerod ' "$dir/root/opt/zero/lib/systemd/system/prezerod.service" || fail "the unit's path"
# A program finds it by pkg-config, and by CMake.
. tests/common/blocks.sh
blocks c docs/library.md >"$dir/example.c"
if command -v pkg-config >/dev/null; then
    flags=$(PKG_CONFIG_PATH=$dir/root/opt/zero/lib/pkgconfig pkg-config --cflags --libs prezero) || fail "pkg-config"
    # shellcheck disable=SC2086 # one word a flag
    cc "$dir/example.c" $flags -o "$dir/example" || fail "a program by pkg-config"
    "$dir/example" >/dev/null || fail "the program by pkg-config does not run"
    readelf -d "$dir/example" | grep -q 'NEEDED.*\[libprezero.so.0\]' || fail "a program does not need libprezero.so.0"
fi
if command -v cmake >/dev/null; then
    printf 'cmake_minimum_required(VERSION 3.13)\nproject(example C)\nfind_package(prezero 0.1 REQUIRED)
add_executable(example example.c)\ntarget_link_libraries(example prezero::prezero)\n' >"$dir/CMakeLists.txt"
    cmake -S "$dir" -B "$dir/cmake" -DCMAKE_PREFIX_PATH="$dir/root/opt/zero" >"$dir/log" 2>&1 &&
        cmake --build "$dir/cmake" >>"$dir/log" 2>&1 || fail "a program by CMake: $(tail -n 5 "$dir/log")"
    "$dir/cmake/example" >/dev/null || fail "the program by CMake does not run"
fi
"$dir/root/opt/zero/bin/prezero" run --stats off -- true || fail "prezero run"
# A second installation over the first forgets nothing of it.
quietly install DESTDIR="$dir/root" PREFIX=/opt/zero
everything "$dir/root" | diff "$dir/installed" - || fail "a second installation differs"
touch "$dir/root/opt/zero/bin/others"
quietly uninstall DESTDIR="$dir/root" PREFIX=/opt/zero
rm "$dir/root/opt/zero/bin/others"
rmdir "$dir/root/opt/zero/bin"
everything "$dir/root" | diff "$dir/before" - || fail "make uninstall leaves something, or takes too much"
if make --no-print-directory uninstall DESTDIR="$dir/root" PREFIX=/opt/zero >"$dir/log" 2>&1; then fail "it uninstalls twice"; fi
grep -q '^uninstall: .* nothing was installed' "$dir/log" || fail "it does not say that nothing is there"
if make --no-print-directory install PREFIX=target/relative >"$dir/log" 2>&1; then fail "it installs into a relative path"; fi
grep -q "^install: PREFIX=target/relative: give an absolute path" "$dir/log" || fail "$(tail -n 5 "$dir/log")"

# Without Debian's tools there is no package, and one line says so.
mkdir "$dir/tools"
for tool in sh dirname sed head; do ln -s "$(command -v $tool)" "$dir/tools"; done
if PATH=$dir/tools packaging/deb.sh >"$dir/log" 2>&1; then fail "packaging/deb.sh makes a package of nothing"; fi
[ "$(cat "$dir/log")" = 'deb: dpkg-buildpackage is missing: apt-get install dpkg-dev debhelper' ] || fail "packaging/deb.sh says: $(cat "$dir/log")"
echo "install: $(wc -l <"$dir/installed") files and folders came and went: good"
