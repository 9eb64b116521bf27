#!/bin/sh
# Runs a command in a mount namespace where crun runs containers: it knows no host with cgroups of both versions, and
# sees those of version 2 alone.
#   tests/common/apart.sh COMMAND...
exec unshare --mount sh -ec '
    [ ! -d /sys/fs/cgroup/unified ] || mount -t cgroup2 cgroup2 /sys/fs/cgroup
    exec "$@"' apart "$@"
