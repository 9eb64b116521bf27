#!/bin/bash
# apt.sh FOLDER KEY FLAVOUR DEB...: adds a kernel's packages to the apt repository FOLDER, and signs it with KEY.
#
# FOLDER is made where there is none, and replaced as a whole when all is signed: an error leaves it as it was.
# It keeps the packages that it had, so a machine can go back to them. Three more are made here:
# linux-image-prezero-FLAVOUR and linux-headers-prezero-FLAVOUR follow the newest kernel, and linux-prezero-settings
# has the sysctl. URL (file:FOLDER) is where machines find FOLDER; prezero.sources is what each of them needs.
set -euo pipefail
[ $# -ge 4 ] || { sed -n '2s/^# //p' "$0" >&2; exit 2; }
folder=$(realpath -m "$1") key=$2 flavour=$3
shift 3
here=$(cd "$(dirname "$0")" && pwd)
[ ! -e "$folder" ] || [ -e "$folder/dists/prezero/InRelease" ] ||
    { echo "apt.sh: $folder exists and is no repository of prezero's" >&2; exit 1; }

mkdir -p "$(dirname "$folder")"
new=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$new"' EXIT
chmod 755 "$new"
mkdir -p "$new/pool" "$new/dists/prezero/main/binary-amd64"
[ ! -e "$folder" ] || cp -al "$folder/pool" "$new/"
cp --remove-destination "$@" "$new/pool/"

field() { dpkg-deb -f "$1" "$2"; }
# package NAME ARCHITECTURE VERSION DESCRIPTION DEPENDS [FILE=PATH]: a package of one file or none, into the pool.
package() {
    local root=$new/package
    mkdir -p "$root/DEBIAN"
    {
        echo "Package: $1"
        echo "Version: $3"
        echo "Architecture: $2"
        echo "Maintainer: $maintainer"
        echo "Section: kernel"
        echo "Priority: optional"
        [ -z "$5" ] || echo "Depends: $5"
        echo "Description: $4"
    } > "$root/DEBIAN/control"
    [ -z "${6:-}" ] || install -Dm 644 "${6%%=*}" "$root/${6#*=}"
    rm -f "$new/pool/$1_$3_$2.deb"  # it may be a link to the published one
    dpkg-deb --root-owner-group --build "$root" "$new/pool/$1_$3_$2.deb" > /dev/null
    rm -rf "$root"
}

image= headers=
for deb; do
    case $(field "$deb" Package) in
    *-dbg) ;;
    linux-image-*) image=$deb ;;
    linux-headers-*) headers=$deb ;;
    esac
done
[ -n "$image" ] || { echo "apt.sh: no linux-image among $*" >&2; exit 1; }
version=$(field "$image" Version) maintainer=$(field "$image" Maintainer)
package linux-prezero-settings all "$version" "sysctl that has kprezerod clear free memory" "" \
    "$here/prezero.conf=usr/lib/sysctl.d/60-prezero-kernel.conf"
# The kernel's own package, as Linux makes it, depends on nothing.
package "linux-image-prezero-$flavour" amd64 "$version" "the newest Linux with prezeroing ($flavour)" \
    "$(field "$image" Package) (= $version), linux-prezero-settings, kmod, initramfs-tools | linux-initramfs-tool"
[ -z "$headers" ] || package "linux-headers-prezero-$flavour" amd64 "$version" \
    "headers of the newest Linux with prezeroing ($flavour)" "$(field "$headers" Package) (= $version)"

cd "$new"
apt-ftparchive packages pool > dists/prezero/main/binary-amd64/Packages
xz -k dists/prezero/main/binary-amd64/Packages
apt-ftparchive -o APT::FTPArchive::Release::Origin=prezero -o APT::FTPArchive::Release::Label=prezero \
    -o APT::FTPArchive::Release::Suite=prezero -o APT::FTPArchive::Release::Codename=prezero \
    -o APT::FTPArchive::Release::Architectures=amd64 -o APT::FTPArchive::Release::Components=main \
    release dists/prezero > "$new.release"
mv "$new.release" dists/prezero/Release
sign() { gpg --batch --yes --quiet --local-user "$key" --digest-algo SHA512 "$@"; }
sign --clearsign --output dists/prezero/InRelease dists/prezero/Release
sign --armor --detach-sign --output dists/prezero/Release.gpg dists/prezero/Release
gpg --batch --armor --export "$key" > prezero.asc
grep -q 'BEGIN PGP PUBLIC KEY' prezero.asc || { echo "apt.sh: gpg exports no public key for $key" >&2; exit 1; }
{
    printf '%s\n' "Types: deb" "URIs: ${URL:-file:$folder}" "Suites: prezero" "Components: main" \
        "Architectures: amd64" "Signed-By:"
    sed 's/^$/./; s/^/ /' prezero.asc
} > prezero.sources

cd - > /dev/null
[ ! -e "$folder" ] || mv "$folder" "$new.old"
mv "$new" "$folder"
rm -rf "$new.old"
echo "$folder: $(field "$folder/pool/linux-image-prezero-${flavour}_${version}_amd64.deb" Depends)"
echo "on each machine: copy prezero.sources to /etc/apt/sources.list.d, then"
echo "    apt update && apt install linux-image-prezero-$flavour"
