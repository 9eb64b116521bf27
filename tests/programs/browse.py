#!/usr/bin/env python3
"""A browser works on page.html, and what it computed is printed: `browse.py COMMAND...`, to which the page's address is added.

The page sends it here. The browser's own words go to the file `log`, and the browser ends after that.
"""
import http.server
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).with_name("page.html").read_bytes()
PATIENCE_S = 300


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def do_POST(self):
        # Browsers send what is no page's as well.
        if self.headers["Content-Type"].startswith("text/plain"):
            self.server.said = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


def main(command):
    # One connection that is kept open must not keep others waiting.
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    server.daemon_threads = True
    server.said, server.timeout = None, 1
    with open("log", "ab") as log:
        browser = subprocess.Popen([*command, f"http://127.0.0.1:{server.server_port}/"], stdout=log, stderr=log)
        for _ in range(PATIENCE_S):
            if server.said is not None or browser.poll() is not None:
                break
            server.handle_request()
        print(server.said)
        browser.terminate()
        browser.wait()
    return server.said is None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
