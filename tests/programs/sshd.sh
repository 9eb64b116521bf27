# about: logins with compression, whose first large block is asked for by sshd's sandboxed child
# version: ssh -V 2>&1 | sed 's/,.*//'
# needs: ssh ssh-keygen sshd
set -e
logins=5
[ "$SCALE" = short ] || logins=100
sshd=$(command -v sshd)
# Where sshd's unprivileged child of root lives.
[ "$(id -u)" -ne 0 ] || mkdir -p /run/sshd
ssh-keygen -q -t ed25519 -N '' -f host
ssh-keygen -q -t ed25519 -N '' -f user
cp user.pub authorized
cat >config <<CONFIG
HostKey $PWD/host
AuthorizedKeysFile $PWD/authorized
StrictModes no
UsePAM no
PidFile none
PermitRootLogin yes
PasswordAuthentication no
CONFIG
# One server a login, on a pipe: no port is taken.
login() {
    ssh -F none -i user -o "ProxyCommand=$sshd -i -e -f $PWD/config 2>>log" -o StrictHostKeyChecking=no \
        -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o BatchMode=yes "$@"
}
seq 400000 >numbers
for each in $(seq "$logins"); do
    login -C here "cat $PWD/numbers; echo $each" | md5sum
    login -C here "md5sum; head -c 3000000 /dev/zero | md5sum" <numbers
done || { tail log >&2; exit 1; }
grep -ci 'fatal\|signal' log || true
