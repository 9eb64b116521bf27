#!/bin/sh
# Runs each line of its argument as a command, whatever became of those before it. Its last lines say which failed, how long all
# took, and which packages of these groups of tests/setup.sh are missing, so that tests were left out.
#   tests/each.sh 'COMMAND
#   COMMAND' [GROUP...]
set -u
failed='' began=$(date +%s)
setup=$(dirname "$0")/setup.sh
count=0
list=$(mktemp)
trap 'rm -f "$list"' EXIT
printf '%s\n' "$1" >"$list"
shift
while IFS= read -r command <&3; do
    command=$(printf '%s' "$command" | sed 's/^[[:space:]]*//')
    [ -n "$command" ] || continue
    count=$((count + 1))
    echo "== $command"
    if sh -c "$command" 3<&-; then continue; else status=$?; fi
    # Interrupted, with all that it started.
    [ $status -ne 130 ] || exit 130
    echo "== failed: $command" >&2
    failed="$failed
    $command"
done 3<"$list"
[ $# -eq 0 ] || SETUP=look "$setup" "$@" || true
took="$((($(date +%s) - began) / 60)) min"
if [ -n "$failed" ]; then
    echo "each: of $count commands, in $took, these failed:$failed" >&2
    exit 1
fi
echo "each: all $count passed, in $took"
