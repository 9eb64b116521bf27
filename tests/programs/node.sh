# about: TypeScript checks its own libraries; zlib, typed arrays, JSON
# version: echo "Node $(node --version), TypeScript $(tsc --version | sed 's/.* //')"
# needs: node tsc
set -e
cat >all.ts <<'T'
export const areas = new Map<string, Float64Array>();
for (let n = 0; n < 100; n++) areas.set(`area ${n}`, new Float64Array(n * 1000));
T
turns=2
[ "$SCALE" = short ] || turns=20
for turn in $(seq $turns); do
    tsc --lib esnext,dom,webworker.iterable --target esnext --declaration --outDir out all.ts
    sha256sum out/*
    node "$TOP/bench/real/arrays.js"
done
