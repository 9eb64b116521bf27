#!/bin/sh
# Prints what Cargo.toml, the one place for it, says of the project; nothing for what is not filled yet.
#   packaging/about.sh version | homepage | repository | issues | maintainer
#   packaging/about.sh --manual        the last section of each man page
set -eu
cd "$(dirname "$0")/.."
about() { sed -n "s/^$1 = \"\(.*\)\"$/\1/p" Cargo.toml | head -n 1; }
if [ "$1" != --manual ]; then
    about "$1"
    exit
fi
home=$(about homepage) issues=$(about issues)
[ -z "$home$issues" ] || echo '.SH "REPORTING BUGS"'
[ -z "$home" ] || printf 'Home page:\n.UR %s\n.UE .\n' "$home"
[ -z "$issues" ] || printf '.br\nReports of bugs:\n.UR %s\n.UE .\n' "$issues"
