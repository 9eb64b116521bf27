#!/bin/sh
# Builds target/debian/prezero_VERSION_ARCH.deb out of what `make build` made.
set -eu
cd "$(dirname "$0")/.."
for each in dpkg dpkg-shlibdeps dpkg-deb; do
    command -v $each >/dev/null || {
        echo "deb: $each is missing: apt-get install dpkg-dev" >&2
        exit 1
    }
done
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
architecture=$(dpkg --print-architecture)
out=target/debian
stage=$out/stage
rm -rf "$out"
mkdir -p "$stage/DEBIAN" "$out/debian"
make --no-print-directory install DESTDIR="$PWD/$stage" PREFIX=/usr
# dpkg has a list of its own.
rm "$stage/usr/lib/prezero/installed"
find "$stage/usr/share/man" -name '*.[18]' -exec gzip -9n {} +
sed -i 's|/usr/local|/usr|g' "$stage/usr/share/doc/prezero/prezerod.toml"
cp CHANGELOG.md README.md "$stage/usr/share/doc/prezero/"
mv "$stage/usr/share/doc/prezero/LICENSE-MIT" "$stage/usr/share/doc/prezero/copyright.MIT"
{
    printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: prezero\n\n'
    printf 'Files: *\nCopyright: 2026 the prezero authors\nLicense: Expat or Apache-2.0\n\nLicense: Expat\n'
    sed '1,4d; s/^$/./; s/^/ /' "$stage/usr/share/doc/prezero/copyright.MIT"
    printf '\nLicense: Apache-2.0\n The text is in /usr/share/common-licenses/Apache-2.0.\n'
} >"$stage/usr/share/doc/prezero/copyright"
rm "$stage/usr/share/doc/prezero/copyright.MIT" "$stage/usr/share/doc/prezero/LICENSE-APACHE"
mkdir -p "$stage/usr/share/doc/prezero/docs/pictures"
cp docs/*.md "$stage/usr/share/doc/prezero/docs/"
# What the pages tell to type is true here.
sed -i 's|/usr/local|/usr|g' "$stage/usr/share/doc/prezero/docs/library.md" "$stage/usr/share/doc/prezero/docs/operator.md"
cp docs/pictures/*.svg "$stage/usr/share/doc/prezero/docs/pictures/"

# What the programs are linked with, and since which version it has what they call.
printf 'Source: prezero\n\nPackage: prezero\nArchitecture: any\n' >"$out/debian/control"
depends=$(cd "$out" && dpkg-shlibdeps -O --ignore-missing-info stage/usr/bin/prezero stage/usr/bin/prezero-qemu stage/usr/bin/prezerod \
    stage/usr/lib/prezero/* | sed -n 's/^shlibs:Depends=//p')
case $depends in
*libc6*) ;;
*)
    echo "deb: dpkg-shlibdeps finds no libc that the programs need" >&2
    exit 1
    ;;
esac
cat >"$stage/DEBIAN/control" <<CONTROL
Package: prezero
Version: $version
Architecture: $architecture
Maintainer: the prezero authors <prezero@localhost>
Section: admin
Priority: optional
Depends: $depends
Installed-Size: $(du -sk "$stage/usr" | cut -f1)
Description: memory that is already zero when a program asks for it
 prezero run gives an unmodified program an allocator whose free memory is cleared
 while a CPU idles; prezerod leases zeroed, populated huge pages to programs that
 start. What that gains and costs is told at the end, shown by prezero top, and
 measured against other allocators by prezero bench.
CONTROL
cat >"$stage/DEBIAN/postinst" <<'SCRIPT'
#!/bin/sh
set -e
# The broker is not started: who may lease is yours to say (/usr/share/doc/prezero/prezerod.toml).
if [ "$1" = configure ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
SCRIPT
cat >"$stage/DEBIAN/prerm" <<'SCRIPT'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl stop prezerod.service prezerod.socket prezerod-metrics.socket 2>/dev/null || true
fi
SCRIPT
chmod 755 "$stage/DEBIAN/postinst" "$stage/DEBIAN/prerm"
dpkg-deb --root-owner-group --build "$stage" "$out/prezero_${version}_$architecture.deb"
