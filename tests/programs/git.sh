# about: commit, gc, repack, fsck, log, clone
# version: git --version
# needs: git awk
# A repository with large files, and this one where its history is here.
set -e
export HOME=$PWD GIT_AUTHOR_DATE='2000-04-24T10:27:54Z' GIT_COMMITTER_DATE='2000-04-24T10:27:54Z'
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@a
git config --global safe.directory '*'
git config --global init.defaultBranch main
git config --global core.logAllRefUpdates false
git config --global gc.auto 0
awk 'BEGIN { srand(3); for (n = 0; n < 500000; n++) printf "%08x %d\n", rand() * 4294967295, n }' >lines
git init -q made
for n in 1 2 3 4 5 6; do
    head -c $((n * 1500000)) lines >"made/file$((n % 3))"
    git -C made add -A
    git -C made commit -qm "state $n"
done
repositories=made
if git -C "$TOP" rev-parse -q --verify HEAD >/dev/null 2>&1; then
    git clone -q --bare --no-local "$TOP" here 2>/dev/null
    repositories="made here"
fi
for repository in $repositories; do
    git -C $repository -c pack.threads=2 gc -q
    [ "$SCALE" = short ] || git -C $repository repack -adfq --depth=50 --window=50
    git -C $repository fsck --full 2>&1 | grep -v '^dangling' || true
    git -C $repository log --stat -p | sha256sum
    git clone -q --no-local $repository copy 2>/dev/null
    git -C copy rev-parse HEAD
    git -C copy ls-files -s | sha256sum
    rm -rf copy
done
