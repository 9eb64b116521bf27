# about: Debian 11's perl and sort with their own C library, as AppImages bring one: a script, and children of one
# version: sed -n 's/^/Debian /p' "$RELEASE/etc/debian_version"
# release: bullseye base-files libc6 libcrypt1 perl-base coreutils libssl1.1 libgmp10
set -e
lines=100000
[ "$SCALE" = short ] || lines=3000000
lib=$RELEASE/lib/x86_64-linux-gnu
[ -d "$lib" ] || lib=$RELEASE/lib/aarch64-linux-gnu
loader=$(echo "$lib"/ld-2.*.so)
of() { "$loader" --library-path "$lib:${lib%/lib/*}/usr/lib/${lib##*/}" "$RELEASE/$@"; }
# Large strings come and go.
of usr/bin/perl -e 'for my $n (1..200) { my $text = "a" x (3000000 + $n); $sum += length $text; } print "$sum\n"'
of usr/bin/perl -e 'print $_ * 7919 % 100003, "\n" for 1..shift' "$lines" >numbers
of usr/bin/sort -n -S 40M numbers | sha256sum
of usr/bin/sort -n -S 40M --parallel=2 numbers | sha256sum
# No libdl and no libpthread, and a block that is large.
of bin/dd if=numbers of=copy bs=4M status=none
of bin/cat copy | sha256sum
