#!/bin/sh
# A process under prezero while it runs: its panel, prezero ctl, and prezero top in a terminal.
#   tests/live.sh DIR      where prezero and libprezero.so are
set -eu
bin=$(cd "$1" && pwd)
dir=$(mktemp -d)
program=
finish() {
    [ -z "$program" ] || kill "$program" 2>/dev/null || true
    tmux -L "$name" kill-server 2>/dev/null || true
    rm -rf "$dir"
}
name="prezero-live-$$"
trap finish EXIT INT TERM
fail() {
    echo "live: $1" >&2
    exit 1
}
# until_true TEXT COMMAND...: at most 20 s.
until_true() {
    what=$1 tries=200
    shift
    while ! "$@"; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || fail "$what: not within 20 s"
        sleep 0.1
    done
}

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
"$bin/prezero" run --stats off -- "$dir/churn" &
program=$!
ctl() { "$bin/prezero" ctl "$program" "$@"; }
scrubs() { [ "$(ctl get scrubbed_bytes 2>/dev/null || echo 0)" -gt 0 ]; }
until_true "scrubd begins" scrubs

[ "$(ctl get scrub_start)" = 4 ] || fail "scrub_start is not what it is by default"
ctl set scrub_rate 64M || fail "set scrub_rate"
[ "$(ctl get scrub-rate)" = 64M ] || fail "scrub-rate was not set"
ctl set scrub-start never || fail "set scrub-start never"
before=$(ctl get scrubbed_bytes)
sleep 1
[ "$(ctl get scrubbed_bytes)" = "$before" ] || fail "never is not never"
ctl set scrub-start 4 && ctl set scrub-rate off
more() { [ "$(ctl get scrubbed_bytes)" -gt "$before" ]; }
until_true "scrubd goes on" more
ctl drain && ctl release || fail "drain, release"
[ "$(ctl get released_bytes)" -gt 0 ] || fail "nothing was released"
ctl stats --json | grep -q '"resident_zero_bytes"' || fail "stats --json"
if ctl set limit 1G 2>"$dir/no"; then fail "the limit cannot be set"; fi
grep -q "^prezero: ctl: $program: set limit 1G: set when the process begins" "$dir/no" || fail "$(cat "$dir/no")"
if "$bin/prezero" ctl $$ get 2>"$dir/no"; then fail "a process without a panel"; fi
grep -q 'no panel' "$dir/no" || fail "$(cat "$dir/no")"
[ -z "$(ls -l /proc/"$program"/fd | grep prezero-panel)" ] || fail "the program has a descriptor of the panel"
echo "live: ctl: good"

"$bin/prezero" top --once -d 0.3 | grep -q "^ *$program churn" || fail "top --once"
"$bin/prezero" top --once --json -d 0.3 | grep -q '"command":"churn"' || fail "top --once --json"
if "$bin/prezero" top </dev/null >"$dir/no" 2>&1; then fail "top without a terminal"; fi
grep -q 'give --once or --json' "$dir/no" || fail "$(cat "$dir/no")"
command -v tmux >/dev/null || { echo "live: left out: no tmux; make setup"; exit 0; }
tmux -L "$name" -f /dev/null new-session -d -x 80 -y 24 "$bin/prezero top -d 0.2; echo left; sleep 60"
screen() { tmux -L "$name" capture-pane -p; }
shows() { screen | grep -q -- "$1"; }
until_true "top shows the process" shows "^ *$program churn"
until_true "top shows sparklines" shows '█'
for part in 'PID COMMAND' 'VERIFY' 'trust whole' 'dirty *zero *absent' 'broker:' 'q leave'; do
    shows "$part" || fail "top does not show '$part': $(screen)"
done
[ "$(screen | wc -l)" -le 24 ] && ! screen | LC_ALL=C.UTF-8 grep -q '.\{81\}' || fail "top does not fit 80x24"
tmux -L "$name" send-keys Left Left r Down
tmux -L "$name" resize-window -x 120 -y 40
until_true "top follows a resize" shows "^ *$program churn"
kill "$program" && wait "$program" 2>/dev/null || true
program=
until_true "top forgets who ended" shows 'nobody runs under prezero'
tmux -L "$name" send-keys q
until_true "q leaves" shows '^left'
echo "live: top: good"
