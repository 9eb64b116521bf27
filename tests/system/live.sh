#!/bin/sh
# A process under prezero while it runs: its panel, prezero ctl, the probes, and prezero top in a
# terminal, with a broker.
#   tests/system/live.sh DIR      where prezero, prezerod and libprezero.so are
set -eu
bin=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
dir=$(mktemp -d)
program='' broker='' holder='' tracer=''
finish() {
    [ -z "$broker" ] || kill -CONT "$broker" 2>/dev/null || true
    for each in $program $holder $broker $tracer; do kill "$each" 2>/dev/null || true; done
    tmux -L "$name" kill-server 2>/dev/null || true
    # At its end it writes its state there.
    [ -z "$broker" ] || wait "$broker" 2>/dev/null || true
    rm -rf "$dir"
}
name="prezero-live-$$"
trap finish EXIT INT TERM
fail() {
    echo "live: $1" >&2
    exit 1
}
. tests/common/until.sh

cat >"$dir/churn.c" <<'C'
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void)
{
	for (;;) {
		char *block[4];
		for (int i = 0; i < 4; i++)
			if ((block[i] = calloc(1, 4 << 20)))
				memset(block[i], 1, 4 << 20);
		for (int i = 0; i < 4; i++)
			free(block[i]);
		usleep(10000);
	}
}
C
cc -O1 -fno-builtin -o "$dir/churn" "$dir/churn.c"
# Where no CPU idles scrubd would wait for one, and clear what pays: neither is the matter here.
export PREZERO_ABLATE=backoff,cost-model
# Too small a zone for a free block of 1 GiB: what wakes scrubd at that size never comes.
"$bin/prezero" run --limit 512M --stats off -- "$dir/churn" &
program=$!
ctl() { "$bin/prezero" ctl "$program" "$@"; }
get() { ctl get "$1" 2>/dev/null || echo 0; }
# Set, however late scrubd has a CPU for it: it may be the last one of a busy machine.
set_to() { until_true "set $1 $2" ctl set "$1" "$2" 2>"$dir/said"; }
is_refused() {
    if ctl set "$1" "$2" 2>"$dir/no"; then fail "set $1 $2"; fi
    ! grep -q 'not yet' "$dir/no"
}
# refused KEY VALUE WHY
refused() {
    until_true "an answer to set $1 $2" is_refused "$1" "$2"
    grep -q "^prezero: ctl: $program: set $1 $2: .*$3" "$dir/no" || fail "$(cat "$dir/no")"
}
above() { [ "$(get "$1")" -gt "$2" ]; }
# A hundred blocks more were freed, so scrubd has had reason to do what it may not do.
goes_on() {
    freed=$(get frees)
    until_true "the program goes on" above frees $((freed + 100))
}
scrubs() {
    from=$(get scrubbed_bytes)
    until_true "$1" above scrubbed_bytes "$from"
}
scrubs_not() {
    from=$(get scrubbed_bytes)
    goes_on
    # What it had begun before it was told.
    [ $(($(get scrubbed_bytes) - from)) -le $((4 << 20)) ] || fail "$1: $(($(get scrubbed_bytes) - from)) bytes"
}
scrubs "scrubd begins"

[ "$(get scrub_start)" = 4 ] || fail "scrub_start is not what it is by default"
set_to scrub_start never
scrubs_not "never is not never"
set_to scrub-start 18
scrubs_not "a block of 1 GiB is what was to wake it"
set_to scrub-start 4
scrubs "scrub-start 4"

set_to scrub_rate 2M
[ "$(get scrub-rate)" = 2M ] || fail "scrub-rate was not set"
PYTHONPATH=tests/common python3 - "$bin/prezero" "$program" <<'PYTHON' || fail "scrub-rate 2M"
import json, subprocess, sys, time
from until import until
def look():
    said = subprocess.run([*sys.argv[1:2], "ctl", sys.argv[2], "stats", "--json"], capture_output=True, check=True)
    reading = json.loads(said.stdout)
    return time.monotonic() - reading["age_s"], reading["values"]["scrubbed_bytes"]
then, before = look()
now, after = until("a reading three seconds later", lambda: (late := look())[0] - then > 3 and late)
# A piece begun before the first look, and one after the last.
most = (now - then) * (2 << 20) + (8 << 20)
assert after - before <= most, f"{after - before} bytes in {now - then} s"
PYTHON
set_to scrub_rate off

set_to stock 8M
small() { [ "$(get resident_zero_bytes)" -le $((8 << 20)) ]; }
until_true "stock 8M" small
for _ in 1 2 3; do
    goes_on
    small || fail "more than 8 MiB lie ready: $(get resident_zero_bytes)"
done
set_to stock 0
# What lies ready is used up.
goes_on
scrubs_not "no stock is no stock"
set_to stock off
scrubs "stock off"

set_to engine memset
[ "$(get engine) $(get engine_cached)" = "memset memset" ] || fail "engine memset: $(get engine_cached)"
set_to engine auto
if [ "$(get engine_cached)" != "$(get engine_bypassing)" ]; then
    set_to scrub-cache 1T
    from=$(get bypassed_bytes)
    scrubs "through the cache"
    [ $(($(get bypassed_bytes) - from)) -le $((4 << 20)) ] || fail "scrub-cache 1T bypasses it"
    set_to scrub-cache 64K
    from=$(get bypassed_bytes)
    until_true "scrub-cache 64K bypasses it" above bypassed_bytes $((from + (64 << 20)))
    set_to scrub-cache auto
fi
# Going to and fro is no limit.
for _ in $(seq 40); do set_to scrub-cache 64K && set_to scrub-cache auto; done

set_to verify full
from=$(get verified_pages)
until_true "verify full" above verified_pages $((from + 4096))
set_to verify off
from=$(get verified_pages)
goes_on
[ $(($(get verified_pages) - from)) -le 4096 ] || fail "verify off"
set_to verify sample

from=$(get released_bytes)
# All may be in use at the moment.
releases() { ctl release 2>"$dir/said" && above released_bytes "$from"; }
until_true "release" releases
ctl stats --json | grep -q '"resident_zero_bytes"' || fail "stats --json"
for fixed in limit threshold stats; do refused $fixed 64K 'when the process begins'; done
refused scrub-rate 1 'give 2M or more'
refused engine warp 'no such clear engine'
refused colour red 'no such knob'
refused stock -1 '64K'
if ctl set verify "$(head -c 2000 /dev/zero | tr '\0' x)" 2>"$dir/no"; then fail "a value of 2000 bytes"; fi
grep -q 'give off, sample or full' "$dir/no" || fail "$(cat "$dir/no")"
if "$bin/prezero" ctl $$ get 2>"$dir/no"; then fail "a process without a panel"; fi
grep -q 'no panel' "$dir/no" || fail "$(cat "$dir/no")"
[ -z "$(ls -l /proc/"$program"/fd | grep prezero-panel)" ] || fail "the program has a descriptor of the panel"

# Many at once: each gets its turn.
for nth in 1 2 3 4 5 6 7 8; do
    (within 300 ctl set decay "$nth" 2>"$dir/turn.$nth" || echo "$nth" >>"$dir/lost") &
    turns="${turns:-} $!"
done
for turn in $turns; do wait "$turn" || true; done
[ ! -e "$dir/lost" ] || fail "lost turns: $(cat "$dir/lost" "$dir"/turn.*)"
set_to decay 10
# Somebody else is told so, and cannot open it.
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
    chmod 755 "$dir" && cp "$bin/prezero" "$dir/prezero" && chmod 755 "$dir/prezero"
    if setpriv --reuid 65534 --regid 65534 --clear-groups "$dir/prezero" ctl "$program" get 2>"$dir/no"; then
        fail "anybody may turn the knobs"
    fi
    grep -q "another user's" "$dir/no" || fail "$(cat "$dir/no")"
    setpriv --reuid 65534 --regid 65534 --clear-groups "$dir/prezero" top --once -d 0.1 >"$dir/others"
    if grep -q churn "$dir/others"; then fail "anybody may look"; fi
fi
# Nobody is told to wait for one that has ended.
"$bin/prezero" run --stats off -- "$dir/churn" &
second=$!
program="$program $second"
has_panel() { "$bin/prezero" ctl "$second" get >/dev/null 2>&1; }
until_true "a second process" has_panel
kill -STOP "$second"
until_true "it stops" is_stopped "$second"
# What is asked of one that is stopped waits, and keeps nobody from asking for more.
for request in 'set decay 7' 'set verify full' 'set decay 6'; do
    # shellcheck disable=SC2086 # its words
    if "$bin/prezero" ctl "$second" $request 2>"$dir/no"; then fail "a stopped process obeys"; fi
    grep -q "$request: not yet: the process is stopped" "$dir/no" || fail "$(cat "$dir/no")"
done
kill -CONT "$second"
has_both() {
    [ "$("$bin/prezero" ctl "$second" get decay)$("$bin/prezero" ctl "$second" get verify)" = 6full ]
}
until_true "all that was asked for meanwhile" has_both
kill -STOP "$second"
until_true "it stops again" is_stopped "$second"
"$bin/prezero" ctl "$second" set decay 5 2>"$dir/no" &
asker=$!
kill -KILL "$second"
if wait $asker; then fail "a dead process obeys"; fi
grep -q 'has ended\|no such process' "$dir/no" || fail "of a dead process: $(cat "$dir/no")"
wait "$second" 2>/dev/null || true
program=${program% *}
echo "live: ctl: good"

for probe in hit miss scrub__begin scrub__end abort release; do
    readelf -n "$bin/libprezero.so" | grep -qx " *Name: $probe" || fail "no probe $probe"
    grep -q "libprezero.so:prezero:$probe" bench/probes.bt || fail "the example does not know $probe"
done
if command -v bpftrace >/dev/null && [ "$(id -u)" -eq 0 ]; then
    sed "s|/usr/local/lib/prezero/|$bin/|" bench/probes.bt >"$dir/probes.bt"
    bpftrace -d "$dir/probes.bt" >"$dir/parsed" 2>&1 || fail "the example does not parse: $(tail -n 5 "$dir/parsed")"
    if bpftrace -e 'BEGIN { exit(); }' >/dev/null 2>&1; then
        # What the example counts is what the process counts.
        bpftrace -p "$program" "$dir/probes.bt" >"$dir/traced" 2>&1 &
        tracer=$!
        # traced NAME: in all seconds so far.
        traced() { awk -v "name=@$1:" '$1 == name { sum += $2 } END { print sum + 0 }' "$dir/traced"; }
        goes_on
        seen() { [ "$(traced "$1")" -gt 0 ]; }
        until_true "the example counts hits" seen hits
        until_true "the example counts what was scrubbed" seen scrubbed_bytes
        goes_on
        hits=$(get hits)
        until_true "hits" above hits $((hits + 200))
        more=$(($(get hits) - hits))
        # What it has counted since it last printed, it prints at its end.
        kill -INT $tracer
        wait $tracer || fail "the example ends with $?: $(tail -n 5 "$dir/traced")"
        [ "$(traced hits)" -ge $more ] || fail "the process counts $more hits, the example $(traced hits): $(cat "$dir/traced")"
        echo "live: probes: good"
    else
        echo "live: probes: all there, the example parses; bpftrace does not run here"
    fi
else
    echo "live: probes: all there; the example was not parsed: no bpftrace, or not root"
fi

prezero_top() { "$bin/prezero" top --socket "$dir/socket" "$@"; }
prezero_top --once -d 0.3 | grep -q "^ *$program churn" || fail "top --once"
prezero_top --once --json -d 0.3 | grep -q '"command":"churn"' || fail "top --once --json"
if "$bin/prezero" top </dev/null >"$dir/no" 2>&1; then fail "top without a terminal"; fi
grep -q 'give --once or --json' "$dir/no" || fail "$(cat "$dir/no")"
command -v tmux >/dev/null || { echo "live: left out: no tmux; make setup"; exit 0; }
tmux -L "$name" -f /dev/null new-session -d -x 80 -y 24 "'$bin/prezero' top --socket '$dir/socket' -d 0.2; echo left; sleep 600"
screen() { tmux -L "$name" capture-pane -p; }
shows() { screen | grep -q -- "$1"; }
keys() { tmux -L "$name" send-keys "$@"; }
fits() {
    [ "$(screen | wc -l)" -le 24 ] && ! screen | LC_ALL=C.UTF-8 grep -q '.\{81\}' || fail "$1 does not fit 80x24: $(screen)"
}
until_true "top shows the process" shows "^ *$program churn"
until_true "top shows sparklines" shows '█'
for part in 'PID COMMAND' 'VERIFY' 'all zeroes were zero' 'dirty *zero *absent' 'broker: none' 'b broker' 'q leave'; do
    shows "$part" || fail "top does not show '$part': $(screen)"
done
[ ! -e /proc/pressure/memory ] || shows 'waiting: .* CPU' || fail "top does not show pressure: $(screen)"
fits top
# A second process: sorted by number, the higher comes first, or last the other way round.
"$bin/prezero" run --stats off -- "$dir/churn" &
second=$!
program="$program $second"
until_true "top shows both" shows "^ *$second churn"
# Others may run under prezero here.
before() { screen | sed -n "s/^ *\($1\|$2\) churn.*/\1/p" | head -n 1 | grep -qx "$1"; }
for _ in 1 2 3 4 5 6 7 8; do keys Left; done # from CPU% to PID
first=${program% *}
# Numbers are taken from the lowest again when the last is given out.
lower=$first higher=$second
[ "$first" -lt "$second" ] || { lower=$second && higher=$first; }
until_true "sorted by number" before "$higher" "$lower"
keys r
until_true "the other way round" before "$lower" "$higher"
# selects PID: from the first row down, however late each picture comes.
selects() {
    keys Home
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        if within 1 shows "^─* $1 churn "; then return 0; fi
        keys Down
    done
    return 1
}
until_true "the first is selected" selects "$first"
until_true "the second is selected" selects "$second"
until_true "and the first again" selects "$first"
kill "$second" && wait "$second" 2>/dev/null || true
program=${program% *}
# In a small window a column is whole or not there, and the table has the room.
tmux -L "$name" resize-window -x 40 -y 12
until_true "top in 40 columns" shows "PID COMMAND .* USED   ZERO  DIRTY$"
shows "q leave" || fail "top in 40 columns does not say how to leave: $(screen)"
until_true "its figures are whole" shows "^ *$program churn .*[0-9][KMG]\{0,1\}$"
tmux -L "$name" resize-window -x 80 -y 24
until_true "top in 80 columns" shows 'WASTE VERIFY'

shared=/sys/kernel/mm/transparent_hugepage/shmem_enabled
if [ ! -e $shared ] || grep -q '\[deny\]' $shared; then
    echo "live: top: good, but for the broker: this kernel makes no transparent huge pages of shared memory"
    exit 0
fi
"$bin/prezerod" --socket "$dir/socket" 2>"$dir/broker" &
broker=$!
until_true "top sees the broker" shows 'broker: ready'
"$bin/prezero" claim --socket "$dir/socket" 8M --wait 300 -- sleep 3000 &
holder=$!
keys b
until_true "top shows who holds what" shows "pid $holder of "
for part in 'PAGES NODE  PIECE  READY LEASED WANTED' 'hits .* misses' 'made .* CPU s' 'audits .* all zero' 'in vain' \
    'under prezero' 'b processes'; do
    shows "$part" || fail "top does not show the broker's '$part': $(screen)"
done
until_true "a sparkline of the broker" shows '█'
fits "top, the broker,"
# One that says nothing stops nobody.
kill -STOP "$broker"
until_true "a broker that is stopped" shows 'SILENT'
keys b
until_true "processes again" shows "^ *$program churn"
kill -CONT "$broker"
until_true "it answers again" shows 'broker: ready'
prezero_top --once --json -d 0.3 | python3 -c '
import json, sys
seen = json.load(sys.stdin)
broker = seen["broker"]
assert [lease["bytes"] for lease in broker["leased"]] == [8 << 20], broker
assert broker["counters"]["leased_bytes"] == 8 << 20 and "pressure_bytes" in broker["counters"], broker
assert "churn" in [process["command"] for process in seen["processes"]] and "memory_some_percent" in seen["pressure"], seen
' || fail "top --json, the broker"
tmux -L "$name" resize-window -x 120 -y 40
until_true "top follows a resize" shows "^ *$program churn"
kill "$program" && wait "$program" 2>/dev/null || true
program=
gone() { ! shows ' churn '; }
until_true "top forgets who ended" gone
keys q
until_true "q leaves" shows '^left'
echo "live: top: good"
