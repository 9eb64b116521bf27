#!/bin/sh
# Prints what Cargo.toml, the one place for it, says of the project; nothing for what is not filled yet.
#   packaging/about.sh version | rust-version | homepage | repository | issues | security | maintainer
#   packaging/about.sh --manual        the last section of each man page
set -eu
cd "$(dirname "$0")/.."
about() { sed -n "s/^$1 = \"\(.*\)\"$/\1/p" Cargo.toml | head -n 1; }
if [ "$1" != --manual ]; then
    about "$1"
    exit
fi
home=$(about homepage) issues=$(about issues) security=$(about security)
[ -z "$home$issues$security" ] || echo '.SH "REPORTING BUGS"'
[ -z "$home" ] || printf 'Home page:\n.UR %s\n.UE .\n' "$home"
[ -z "$issues" ] || printf '.br\nReports of bugs:\n.UR %s\n.UE .\n' "$issues"
[ -z "$security" ] || printf '.br\nSecurity bugs, in private:\n.UR %s\n.UE .\n' "$security"
