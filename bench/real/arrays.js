// Node's own zlib and crypto, typed arrays (calloc) and JSON, over data made here.
const zlib = require('zlib'), crypto = require('crypto');
const key = crypto.createHash('sha256').update('prezero').digest();
const data = crypto.createCipheriv('aes-256-ctr', key, Buffer.alloc(16)).update(Buffer.alloc(4 << 20));
for (let i = 0; i < data.length; i++) data[i] &= 15;
let sum = 0;
for (let round = 0; round < 4; round++) {
  const back = zlib.inflateSync(zlib.deflateSync(data, { level: 1 }));
  const wide = new Float64Array(back.length), smooth = new Float64Array(back.length);
  for (let i = 0; i < wide.length; i++) wide[i] = back[i] * 1.5;
  for (let i = 1; i < wide.length - 1; i++) smooth[i] = (wide[i - 1] + wide[i] + wide[i + 1]) / 3;
  const counts = new Uint32Array(4 << 20);
  for (let i = 3; i < back.length; i += 4) counts[back.readUInt32LE(i - 3) % counts.length]++;
  const names = new Map();
  for (let i = 0; i < 100000; i++) names.set('k' + (i * 7 % 50000), i);
  sum += smooth[1000] + counts[15] + JSON.parse(JSON.stringify([...names])).length;
}
console.log(sum);
