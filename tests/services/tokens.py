"""A token endpoint before another one, and a collector of spans: tokens.py ORIGIN SPANS.

Prints {"port": N}, then {"grant", "secrets"} for each request that is passed on to ORIGIN: its grant type, and the tokens and the
code that it is about. A span that comes is appended to the file SPANS as it is.
"""

import gzip
import json
import sys
import urllib.error
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BODY = 1 << 22
PASSED = ("authorization", "content-type", "accept")
ISSUED = ("access_token", "refresh_token", "id_token")
# Whatever proxy the environment names: the origin is on this machine.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(min(int(self.headers.get("content-length", 0)), BODY))
        if self.path == "/v1/traces":
            self.keep(body)
            return self.reply(200, "application/x-protobuf", b"")
        headers = {name: self.headers[name] for name in PASSED if name in self.headers}
        request = urllib.request.Request(self.server.origin + self.path, data=body, headers=headers)
        try:
            with OPENER.open(request, timeout=60) as answer:
                status, content = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, content = error.code, error.read()
        form = urllib.parse.parse_qs(body.decode())
        issued = json.loads(content or b"{}")
        secrets = [issued[name] for name in ISSUED if name in issued] + form.get("code", [])
        print(json.dumps({"grant": form.get("grant_type", [""])[0], "secrets": secrets}), flush=True)
        self.reply(status, "application/json", content)

    def keep(self, body):
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        with open(self.server.spans, "ab") as file:
            file.write(body)

    def reply(self, status, kind, content):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


def main(origin, spans):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.origin, server.spans = origin, spans
    print(json.dumps({"port": server.server_address[1]}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
