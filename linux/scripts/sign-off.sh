#!/bin/bash
# sign-off.sh NAME EMAIL [FOLDER]: copies the series to FOLDER (signed-off) with the poster's name and address.
#
# The patches in the tree are signed by a placeholder, because a sign-off is a person's word. The copy has NAME
# and EMAIL in its place: as author, in MAINTAINERS and behind Signed-off-by.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2s/^# //p' "$0" >&2; exit 2; }
name=$1 email=$2 folder=${3:-signed-off}
patches=$(cd "$(dirname "$0")/../patches" && pwd)
placeholder='Placeholder Name <placeholder@example.org>'
[[ $name =~ [^[:space:]] && $name != *[\<\>@]* ]] || { echo "sign-off.sh: '$name' is no name" >&2; exit 2; }
[[ $email =~ ^[^[:space:]\<\>@]+@[^[:space:]\<\>@]+\.[^[:space:]\<\>@]+$ ]] ||
    { echo "sign-off.sh: '$email' is no address" >&2; exit 2; }
[ ! -e "$folder" ] || { echo "sign-off.sh: $folder exists" >&2; exit 1; }

cp -r "$patches" "$folder"
# Both may have what sed would read.
with=$(printf '%s' "$name <$email>" | sed 's/[\\&|]/\\&/g')
find "$folder" -name '*.patch' -exec sed -i "s|$placeholder|$with|" {} +
! grep -rlF 'Placeholder' "$folder" || { echo "sign-off.sh: the placeholder is left in these" >&2; exit 1; }
echo "$folder: $(find "$folder" -name '*.patch' | wc -l) patches by $name <$email>"
