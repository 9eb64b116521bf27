"""An image service: each request draws into a canvas of its own, which begins as zeroes, and gets it as a PNG.

Run: prezero run -- python3 examples/images.py 40
That asks itself 40 times. Without a number it serves http://127.0.0.1:8000/300 until it is ended.
"""
import http.server
import struct
import sys
import threading
import time
import urllib.request
import zlib

import numpy

SIDE = 1024


class Image(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        canvas = numpy.zeros((SIDE, SIDE + 1), numpy.uint8)  # PNG has a byte in front of each row
        y, x = numpy.ogrid[-SIDE // 2:SIDE // 2, -SIDE // 2:SIDE // 2]
        canvas[:, 1:][x**2 + y**2 < int(self.path[1:]) ** 2] = 255
        parts = {b"IHDR": struct.pack(">IIBBBBB", SIDE, SIDE, 8, 0, 0, 0, 0), b"IDAT": zlib.compress(canvas.tobytes(), 1), b"IEND": b""}
        self.send_response(200)
        self.send_header("Content-Type", "image/png")
        self.end_headers()
        self.wfile.write(b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts.items()))


count = int(sys.argv[1]) if sys.argv[1:] else 0
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0 if count else 8000), Image)
threading.Thread(target=server.serve_forever, daemon=count > 0).start()
for radius in range(count):
    png = urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/{radius}").read()
    time.sleep(0.01)
if count:
    print(f"{count} images, the last of {len(png)} bytes")
