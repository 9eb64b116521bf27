#!/bin/sh
# Runs each line of its argument as a command, whatever became of those before it, and says at the end which failed.
#   tests/each.sh 'COMMAND
#   COMMAND'
set -u
failed=
count=0
list=$(mktemp)
trap 'rm -f "$list"' EXIT
printf '%s\n' "$1" >"$list"
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
if [ -n "$failed" ]; then
    echo "each: of $count commands these failed:$failed" >&2
    exit 1
fi
echo "each: all $count passed"
