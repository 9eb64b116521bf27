# about: headless: a page computes, draws and compresses, a worker thread beside it
# version: firefox-esr --version 2>/dev/null
# needs: firefox-esr python3
# scale: long
set -e
turns=1
[ "$SCALE" = short ] || turns=10
export HOME=$PWD
for turn in $(seq "$turns"); do
    mkdir "profile.$turn"
    "$TOP/tests/programs/browse.py" firefox-esr --headless --no-remote --profile "profile.$turn"
    rm -rf "profile.$turn"
done
