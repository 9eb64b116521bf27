#!/bin/sh
# Builds three Debian packages in target/debian out of what `make build` made: prezero (commands, libraries, manuals, pages),
# libprezero-dev (headers, pkg-config, CMake) and prezerod (the broker and its units).
# With SOURCE_DATE_EPOCH the same sources give the same bytes.
set -eu
cd "$(dirname "$0")/.."
for each in dpkg dpkg-shlibdeps dpkg-architecture dpkg-deb; do
    command -v $each >/dev/null || {
        echo "deb: $each is missing: apt-get install dpkg-dev" >&2
        exit 1
    }
done
umask 022
version=$(packaging/about.sh version) home=$(packaging/about.sh homepage)
# Debian wants an address; until Cargo.toml has one a package is a draft.
maintainer=$(packaging/about.sh maintainer)
maintainer=${maintainer:-the prezero authors <prezero@example.org>}
architecture=$(dpkg --print-architecture)
out=target/debian
rm -rf "$out"
mkdir -p "$out/debian" "$out/prezero"
make --no-print-directory install DESTDIR="$PWD/$out/prezero" PREFIX=/usr
# dpkg has a list of its own.
rm "$out/prezero/usr/lib/prezero/installed"
find "$out/prezero/usr/share/man" -name '*.[18]' -exec gzip -9n {} +
# moved PACKAGE PATH...: from the first package to this one.
moved() {
    to=$1
    shift
    for path; do
        mkdir -p "$(dirname "$out/$to/usr/$path")"
        mv "$out/prezero/usr/$path" "$out/$to/usr/$path"
    done
}
moved libprezero-dev include lib/pkgconfig lib/cmake
# Where a pkg-config for another machine does not look.
triplet=$out/libprezero-dev/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
mkdir -p "$triplet"
mv "$out/libprezero-dev/usr/lib/pkgconfig" "$triplet/"
sed -i 's|{pcfiledir}/../..|{pcfiledir}/../../..|' "$triplet/pkgconfig/prezero.pc"
moved prezerod bin/prezerod lib/systemd share/man/man8 share/bash-completion/completions/prezerod \
    share/zsh/site-functions/_prezerod share/fish/vendor_completions.d/prezerod.fish share/doc/prezero/prezerod.toml \
    share/doc/prezero/charge.conf
find "$out/prezero" -type d -empty -delete
mv "$out/prezerod/usr/share/doc/prezero" "$out/prezerod/usr/share/doc/prezerod"
sed -i 's|/usr/local|/usr|g' "$out/prezerod/usr/share/doc/prezerod/prezerod.toml"

# Its pages: what they tell to type is true here.
pages=$out/prezero/usr/share/doc/prezero
mkdir -p "$pages/docs/pictures"
cp README.md "$pages/"
cp docs/*.md "$pages/docs/"
sed -i 's|/usr/local|/usr|g' "$pages/docs/library.md" "$pages/docs/operator.md"
sed -i 's|doc/prezero/prezerod.toml|doc/prezerod/prezerod.toml|' "$pages/docs/operator.md"
cp docs/pictures/*.svg "$pages/docs/pictures/"
{
    printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: prezero\n'
    [ -z "$home" ] || echo "Source: $home"
    printf '\nFiles: *\nCopyright: 2026 the prezero authors\nLicense: Expat or Apache-2.0\n\nLicense: Expat\n'
    sed '1,4d; s/^$/./; s/^/ /' LICENSE-MIT
    printf '\nLicense: Apache-2.0\n The text is in /usr/share/common-licenses/Apache-2.0.\n'
} >"$out/copyright"
rm "$pages/LICENSE-MIT" "$pages/LICENSE-APACHE"
# What Debian reads, of the release alone; what users read is CHANGELOG.md.
day=$(LC_ALL=C date -uR -d "@${SOURCE_DATE_EPOCH:-$(date +%s)}")
printf 'prezero (%s) unstable; urgency=medium\n\n  * Release %s: see CHANGELOG.md beside this file.\n\n -- %s  %s\n' \
    "$version" "$version" "$maintainer" "$day" >"$out/debian/changelog"
for package in prezero libprezero-dev prezerod; do
    doc=$out/$package/usr/share/doc/$package
    mkdir -p "$doc"
    cp "$out/copyright" "$doc/copyright"
    cp CHANGELOG.md "$doc/"
    gzip -9nc "$out/debian/changelog" >"$doc/changelog.gz"
done

# needs PATTERNS: what the programs are linked with, and since which version it has what they call.
printf 'Source: prezero\n\nPackage: prezero\nArchitecture: any\n' >"$out/debian/control"
needs() {
    # shellcheck disable=SC2086 # patterns
    found=$(cd "$out" && dpkg-shlibdeps -O --ignore-missing-info $1 | sed -n 's/^shlibs:Depends=//p')
    case $found in
    *libc6*) echo "$found" ;;
    *)
        echo "deb: dpkg-shlibdeps finds no libc that the programs need" >&2
        exit 1
        ;;
    esac
}
# package NAME SECTION: with the fields and the description of standard input.
package() {
    stage=$out/$1
    mkdir -p "$stage/DEBIAN"
    {
        [ "$1" = prezero ] && source= || source='Source: prezero\n'
        printf "Package: %s\n${source}Version: %s\nArchitecture: %s\nMaintainer: %s\n" "$1" "$version" "$architecture" "$maintainer"
        [ -z "$home" ] || echo "Homepage: $home"
        printf 'Section: %s\nPriority: optional\nInstalled-Size: %s\n' "$2" "$(du -sk --apparent-size "$stage/usr" | cut -f1)"
        cat
    } >"$stage/DEBIAN/control"
    (cd "$stage" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$stage/DEBIAN/md5sums"
    dpkg-deb --root-owner-group --build "$stage" "$out/$1_${version}_$architecture.deb"
}
programs=$(needs 'prezero/usr/bin/* prezero/usr/lib/prezero/*')
broker=$(needs prezerod/usr/bin/prezerod)
package prezero admin <<CONTROL
Depends: $programs
Suggests: prezerod
Description: memory that is already zero when a program asks for it
 prezero run gives an unmodified program an allocator whose free memory is
 cleared while a CPU idles. What that gains and costs is told at the end,
 shown by prezero top, and measured against other allocators by prezero bench.
CONTROL
package libprezero-dev libdevel <<CONTROL
Depends: prezero (= $version)
Description: headers of libprezero.so, for C and C++
 prezero.h and prezero.hpp are the functions of libprezero.so,
 prezero_lease.h is the client of prezerod. pkg-config and CMake find the
 library.
CONTROL
mkdir -p "$out/prezerod/DEBIAN"
cat >"$out/prezerod/DEBIAN/postinst" <<'SCRIPT'
#!/bin/sh
set -e
# The broker is not started: who may lease is yours to say (/usr/share/doc/prezerod/prezerod.toml).
if [ "$1" = configure ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
SCRIPT
cat >"$out/prezerod/DEBIAN/prerm" <<'SCRIPT'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    deb-systemd-invoke stop prezerod.service prezerod.socket prezerod-metrics.socket || true
fi
SCRIPT
chmod 755 "$out/prezerod/DEBIAN/postinst" "$out/prezerod/DEBIAN/prerm"
package prezerod admin <<CONTROL
Depends: $broker
Suggests: prezero
Description: broker of zeroed, populated huge pages
 prezerod leases huge pages that are zero already to programs that start:
 guests, JVMs, databases, caches. prezero claim takes a lease for an
 unmodified program.
CONTROL
