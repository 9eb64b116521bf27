#!/bin/sh
# Runs each line of its argument as a command, whatever became of those before it. Its last lines say which failed, after the
# last lines that each of those printed, how long all took, and which packages of these groups of tests/setup.sh are missing,
# so that tests were left out.
#   tests/each.sh 'COMMAND
#   COMMAND' [GROUP...]
#   tests/each.sh --test      tries this script
set -u
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# Of what a failed command printed: a log that is cut still says why.
LINES_AGAIN=30
if [ "$1" = --test ]; then
    fail() {
        echo "each: $1; it says:" >&2
        cat "$dir/said" >&2
        exit 1
    }
    LEFT_S=1 "$0" "seq 100
        echo first; seq 101 140 >&2; exit 3
        sleep 600 & echo \$! >$dir/left; echo goes on
        true" >"$dir/said" 2>&1 && fail "a failure is success"
    kill "$(cat "$dir/left")" || fail "it waits for what a command left behind"
    grep -q '^goes on$' "$dir/said" || fail "it ends with the first failure"
    [ "$(grep -c '^100$' "$dir/said") $(grep -c '^first$' "$dir/said")" = "1 1" ] || fail "what is no last line of a failure comes twice"
    tail -n 33 "$dir/said" >"$dir/last"
    [ "$(head -n 2 "$dir/last" | tail -n 1)" = 111 ] && [ "$(sed -n 31p "$dir/last")" = 140 ] || fail "the last lines do not come again"
    head -n 1 "$dir/last" | grep -q '^== failed: .*exit 3; it printed last:$' || fail "they do not stand under a name"
    sed -n 32p "$dir/last" | grep -q '^each: of 4 commands, .* these failed:$' || fail "no list of what failed"
    "$0" true | grep -q '^each: all 1 passed' || fail "success is a failure"
    echo "each: good"
    exit 0
fi
failed='' began=$(date +%s)
setup=$(dirname "$0")/setup.sh
count=0
printf '%s\n' "$1" >"$dir/list"
shift
: >"$dir/again"
mkfifo "$dir/pipe"
# gone PID: all that a command printed is read, on a machine that starves later. What it left behind may print for hours.
gone() {
    tries=$((${LEFT_S:-30} * 10))
    while kill -0 "$1" 2>/dev/null; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || kill "$1"
        sleep 0.1
    done
}
while IFS= read -r command <&3; do
    command=$(printf '%s' "$command" | sed 's/^[[:space:]]*//')
    [ -n "$command" ] || continue
    count=$((count + 1))
    echo "== $command"
    tee "$dir/log" <"$dir/pipe" 3<&- &
    tee=$!
    sh -c "$command" >"$dir/pipe" 2>&1 3<&- && status=0 || status=$?
    gone $tee
    # Interrupted, with all that it started.
    [ $status -ne 130 ] || exit 130
    [ $status -ne 0 ] || continue
    echo "== failed: $command" >&2
    { echo "== failed: $command; it printed last:" && tail -n $LINES_AGAIN "$dir/log"; } >>"$dir/again"
    failed="$failed
    $command"
done 3<"$dir/list"
[ $# -eq 0 ] || SETUP=look "$setup" "$@" || true
took="$((($(date +%s) - began) / 60)) min"
if [ -n "$failed" ]; then
    cat "$dir/again" >&2
    echo "each: of $count commands, in $took, these failed:$failed" >&2
    exit 1
fi
echo "each: all $count passed, in $took"
