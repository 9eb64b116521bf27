# about: headless: a page computes, draws and compresses, a worker thread beside it
# version: chromium --version 2>/dev/null
# needs: chromium python3
# scale: long
set -e
turns=2
[ "$SCALE" = short ] || turns=20
export HOME=$PWD
# Root has no sandbox of Chromium's.
more=
[ "$(id -u)" -ne 0 ] || more=--no-sandbox
for turn in $(seq "$turns"); do
    # shellcheck disable=SC2086 # words
    "$TOP/tests/programs/browse.py" chromium --headless=new $more --disable-gpu --no-first-run --user-data-dir="$PWD/data.$turn"
    rm -rf "data.$turn"
done
