#!/bin/sh
# Installs what `make build` made, and writes down what it put where: packaging/uninstall.sh reads that.
#   packaging/install.sh DESTDIR PREFIX        DESTDIR may be empty
# PROGRAMS, LIBRARIES and STRIP may name other folders and another machine's strip; HERE, the same programs for this machine.
set -eu
cd "$(dirname "$0")/.."
destination=$1 prefix=$2
case $prefix in
'' | /*) ;;
*)
    echo "install: PREFIX=$prefix: give an absolute path: PREFIX=$PWD/$prefix" >&2
    exit 1
    ;;
esac
bin=${PROGRAMS:-target/release} libraries=${LIBRARIES:-target/library} strip=${STRIP:-strip}
here=${HERE:-$bin}
manifest=$prefix/lib/prezero/installed
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
chmod 755 "$stage"
root=$stage$prefix
version=$(packaging/about.sh version) home=$(packaging/about.sh homepage)

# put MODE FILE PLACE; program FILE PLACE and library FILE, without their symbols.
put() { install -Dm"$1" "$2" "$root/$3"; }
program() { install -Dsm755 --strip-program="$strip" "$bin/$1" "$root/$2/$1"; }
library() { install -Dsm644 --strip-program="$strip" "$libraries/$1" "$root/lib/prezero/$1"; }
# filled FILE PLACE: with the folder that everything is in, in place of the usual one.
filled() {
    mkdir -p "$(dirname "$root/$2")"
    sed "s|@PREFIX@|$prefix|g; s|@VERSION@|$version|g; s|@HOMEPAGE@|$home|g; s|/usr/local/|$prefix/|g" "$1" >"$root/$2"
}

for each in prezero prezero-qemu prezerod; do program $each bin; done
program prezero-bench lib/prezero
for each in libprezero.so libprezero_lease_shim.so libprezero_pinned.so libprezero_numpy.so; do library $each; done
ln -s libprezero.so "$root/lib/prezero/libprezero.so.0"
put 644 crates/prezero-preload/include/prezero.h include/prezero.h
put 644 crates/prezero-preload/include/prezero.hpp include/prezero.hpp
filled packaging/develop/prezero.pc lib/pkgconfig/prezero.pc
for each in prezero-config prezero-config-version; do
    filled packaging/develop/$each.cmake lib/cmake/prezero/$each.cmake
done
put 644 crates/prezerod/include/prezero_lease.h include/prezero_lease.h
put 644 crates/prezerod/man/prezerod.8 share/man/man8/prezerod.8
for each in prezero prezero-bench prezerod; do "$here/$each" generate "$root/share"; done
for page in claim qemu; do
    put 644 crates/prezero-cli/man/prezero-$page.1 share/man/man1/prezero-$page.1
done
find "$root/share/man" -name '*.[18]' | while IFS= read -r page; do packaging/about.sh --manual >>"$page"; done
put 644 crates/prezerod/examples/charge.conf share/doc/prezero/charge.conf
put 644 crates/prezerod/prezerod.toml share/doc/prezero/prezerod.toml
for each in alerts.yaml dashboard.json; do put 644 crates/prezerod/ops/$each share/doc/prezero/$each; done
for each in LICENSE-MIT LICENSE-APACHE; do put 644 $each share/doc/prezero/$each; done
filled bench/probes.bt share/doc/prezero/probes.bt
for unit in crates/prezerod/systemd/*; do filled "$unit" "lib/systemd/system/${unit##*/}"; done

# What is there from an earlier installation, and its folders, stay written down.
[ ! -e "$destination$manifest" ] || cp "$destination$manifest" "$stage.old"
{
    [ ! -e "$stage.old" ] || cat "$stage.old"
    (cd "$stage" && find . -type f -o -type l) | sed 's|^\.||'
    echo "$manifest"
    # Folders that come into being now, the deepest first when they go.
    (cd "$stage" && find . -mindepth 1 -type d) | sed 's|^\.||' | while IFS= read -r folder; do
        [ -d "$destination$folder" ] || echo "$folder/"
    done
} | sort -u >"$stage.new"
rm -f "$stage.old"
mkdir -p "$root/lib/prezero"
mv "$stage.new" "$stage$manifest"
chmod 644 "$stage$manifest"
mkdir -p "$destination/"
(cd "$stage" && tar -cf - --owner=0 --group=0 .) | tar -xf - --no-same-owner --no-overwrite-dir -C "$destination/"
