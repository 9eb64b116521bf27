# How a test in shell waits. A script reads this file after it has defined `fail`.

# within SECONDS COMMAND...: looks until the command succeeds, for so long at most; whether it did. Twice as long by the
# clock, where the machine starves, and no longer: a command may take a while itself.
within() {
    within_tries=$(($1 * 20)) within_end=$(($(date +%s) + 2 * $1))
    shift
    until "$@"; do
        within_tries=$((within_tries - 1))
        [ $within_tries -gt 0 ] && [ "$(date +%s)" -le "$within_end" ] || return 1
        sleep 0.05
    done
}

# until_true WHAT COMMAND...: looks until the command succeeds. What takes a moment takes minutes on a machine that
# starves.
until_true() {
    until_what=$1
    shift
    within 300 "$@" || fail "$until_what: not within five minutes"
}

# is_stopped PID: whether all its threads are. A SIGSTOP is heard by each when it has a CPU.
is_stopped() { ! grep -hs '^State:' "/proc/$1"/task/*/status | grep -qv 'T (stopped)'; }
