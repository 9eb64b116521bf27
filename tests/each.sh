#!/bin/sh
# Runs each line of its argument as a command, whatever became of those before it. Its last lines say which failed, after the
# last lines that each of those printed, how long all took, and which packages of these groups of tests/setup.sh are missing,
# so that tests were left out.
#   tests/each.sh 'COMMAND
#   COMMAND' [GROUP...]
#   tests/each.sh --test      tries this script
# The slowest are named with their times, by the clock and of CPUs. Lines that begin with & need no machine of their own: they
# run one after another beside the others, and what they printed comes last.
# With AGAIN=1 a command that failed is run once more after all others. One that passes then is named as unsteady, and is no
# failure: a machine that many share stalls at times. Wrong data and a death by a signal stay failures.
set -u
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# Of what a failed command printed: a log that is cut still says why.
LINES_AGAIN=30
WRONG='not zero|false zero|wrong data|signal: [0-9]|SIG(SEGV|ABRT|BUS|ILL)|Segmentation fault|Aborted|core dumped'
if [ "$1" = --test ]; then
    fail() {
        echo "each: $1; it says:" >&2
        cat "$dir/said" >&2
        exit 1
    }
    unset AGAIN
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
    once="[ -e $dir/once ] || { touch $dir/once; exit 1; }"
    AGAIN=1 "$0" "$once" >"$dir/said" 2>&1 || fail "what passes at the second try fails"
    grep -A 1 '^each: unsteady' "$dir/said" | tail -n 1 | grep -qF "    $once" || fail "what is unsteady is not named"
    rm "$dir/once"
    "$0" "$once" >"$dir/said" 2>&1 && fail "it tries again though nobody asks for it"
    for wrong in 'a page is not zero' 'signal: 11, SIGSEGV'; do
        rm -f "$dir/once"
        AGAIN=1 "$0" "[ -e $dir/once ] || { touch $dir/once; echo $wrong; exit 1; }" >"$dir/said" 2>&1 && fail "$wrong: forgiven"
    done
    AGAIN=1 "$0" "echo x >>$dir/twice; false" >"$dir/said" 2>&1 && fail "what fails twice is forgiven"
    [ "$(grep -c x "$dir/twice")" = 2 ] || fail "it is not run twice"
    "$0" true | grep -q '^each: all 1 passed' || fail "success is a failure"
    "$0" "echo first
        & echo beside; false" >"$dir/said" 2>&1 && fail "a failure beside the others is success"
    [ "$(grep -c '^beside$' "$dir/said")" = 2 ] && grep -q 'what ran beside' "$dir/said" || fail "what ran beside the others is not told"
    SLOW_S=0 "$0" 'sleep 1' | grep -q '^ *[1-9][0-9]* s, of CPUs [0-9]* s: sleep 1$' || fail "no time"
    echo "each: good"
    exit 0
fi
began=$(date +%s)
setup=$(dirname "$0")/setup.sh
count=0
printf '%s\n' "$1" >"$dir/list"
shift
: >"$dir/last"
: >"$dir/again"
mkfifo "$dir/pipe"
# sleeps PID: it has read all that there is. One with something to read waits for a CPU at most.
sleeps() { grep -qs '^State:.S' "/proc/$1/status"; }
# gone PID: all that a command printed is read, on a machine that starves later. What it left behind may print for hours.
gone() {
    tries=$((${LEFT_S:-30} * 10))
    while kill -0 "$1" 2>/dev/null; do
        ! sleeps "$1" || tries=$((tries - 1))
        [ $tries -gt 0 ] || kill "$1"
        sleep 0.1
    done
}
# s of CPUs, as `times` wrote them, that all commands took so far.
spent() { tail -n 1 "$dir/cpus" | tr 'ms' '  ' | awk '{ printf "%d", 60 * $1 + $2 + 60 * $3 + $4 }'; }
# run COMMAND: its exit status; what it printed is in the log too.
run() {
    echo "== $1"
    times >"$dir/cpus"
    since=$(date +%s) cpus=$(spent)
    tee "$dir/log" <"$dir/pipe" &
    tee=$!
    sh -c "$1" >"$dir/pipe" 2>&1 && status=0 || status=$?
    gone $tee
    times >"$dir/cpus"
    echo "$(($(date +%s) - since)) s, of CPUs $(($(spent) - cpus)) s: $1" >>"$dir/times"
    # Interrupted, with all that it started.
    [ $status -ne 130 ] || exit 130
    return $status
}
failed='' unsteady=''
# note COMMAND: its last lines come again at the end; a second try is left to what AGAIN asks for.
note() {
    echo "== failed: $1" >&2
    { echo "== failed: $1; it printed last:" && tail -n $LINES_AGAIN "$dir/log"; } >>"$dir/last"
    if [ "${AGAIN:-0}" = 1 ] && ! grep -qE "$WRONG" "$dir/log"; then
        echo "$1" >>"$dir/again"
    else
        failed="$failed
    $1"
    fi
}
beside=$(sed -n 's/^[[:space:]]*& //p' "$dir/list")
if [ -n "$beside" ]; then
    "$0" "$beside" >"$dir/beside" 2>&1 &
    other=$!
fi
while IFS= read -r command <&3; do
    command=$(printf '%s' "$command" | sed 's/^[[:space:]]*//')
    case $command in '' | '& '*) continue ;; esac
    count=$((count + 1))
    run "$command" 3<&- || note "$command"
done 3<"$dir/list"
while IFS= read -r command <&3; do
    if run "$command" 3<&-; then
        unsteady="$unsteady
    $command"
    else
        AGAIN=0 note "$command"
    fi
done 3<"$dir/again"
if [ -n "$beside" ]; then
    wait $other || failed="$failed
    what ran beside the others, whose lines stand above"
    echo "== beside the others"
    cat "$dir/beside"
fi
[ $# -eq 0 ] || SETUP=look "$setup" "$@" || true
cat "$dir/last" >&2
took="$((($(date +%s) - began) / 60)) min"
sort -rn "$dir/times" | awk -v least="${SLOW_S:-20}" 'NR <= 12 && $1 >= least { print "    " $0 }'
[ -z "$unsteady" ] || echo "each: unsteady, failed once and passed at the second try; its lines stand above:$unsteady" >&2
if [ -n "$failed" ]; then
    echo "each: of $count commands, in $took, these failed:$failed" >&2
    exit 1
fi
echo "each: all $count passed, in $took"
