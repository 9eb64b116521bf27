# about: a prefix is made; scripts, the registry, an archive packed and unpacked, by the Windows programs that come with it
# version: wine --version
# needs: wine wineserver
# scale: long
set -e
turns=1
[ "$SCALE" = short ] || turns=20
export HOME=$PWD WINEPREFIX=$PWD/prefix WINEDEBUG=-all WINEDLLOVERRIDES="mscoree,mshtml="
unset DISPLAY
run() { timeout 600 wine "$@" 2>>log | tr -d '\r'; }
cat >work.js <<'JS'
var lines = [], sum = 0;
for (var n = 0; n < 100000; n++) lines.push("line " + n * 7919 % 100003);
lines.sort();
var text = lines.join("\n");
for (var at = 0; at < text.length; at += 7) sum = (sum * 31 + text.charCodeAt(at)) % 1000003;
WScript.Echo("sorted " + lines.length + " " + text.length + " " + sum);
JS
trap 'wineserver -k 2>/dev/null || true' EXIT
for turn in $(seq "$turns"); do
    run cscript //nologo work.js
    run cmd /c "for /L %i in (1,1,500) do @echo line %i" | cksum
    run reg add 'HKCU\Software\Work' /v turn /d "$turn" /f
    run reg query 'HKCU\Software\Work'
    seq "$((turn * 500000))" >in.txt
    run cabarc n "out.cab" in.txt
    mkdir out
    run cabarc x out.cab in.txt 'out\' >>log
    cksum <out/in.txt
    cksum <in.txt
    rm -rf out out.cab
done
wineserver -w 2>/dev/null || true
