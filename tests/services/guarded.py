"""A service that takes a call only with a token for it: guarded.py CONFIG.

CONFIG is a JSON file, written before the first call: {"keys": URL of the key set, "issuer", "audience"}, and where the
issuer is another than the platform its "algorithms" and "typ". Prints {"port": N}, then {"seen": [...]} for each request: the names of its headers. Every POST is answered with who calls, or 401.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jwt

BODY = 1 << 20
TOLD = ("sub", "org", "scope", "caller_issuer", "preferred_username")


class Judge:
    """Keys are fetched once, and anew when a token names one that is not known."""

    def __init__(self, path):
        self.path = path
        self.config = None

    def caller(self, header):
        if self.config is None:
            with open(self.path, encoding="utf-8") as file:
                self.config = json.load(file)
            self.keys = jwt.PyJWKClient(self.config["keys"])
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer":
            raise jwt.InvalidTokenError("no bearer token")
        if jwt.get_unverified_header(token).get("typ") not in self.config.get("typ", ["at+jwt"]):
            raise jwt.InvalidTokenError("no access token")
        key = self.keys.get_signing_key_from_jwt(token).key
        return jwt.decode(token, key, algorithms=self.config.get("algorithms", ["ES256"]),
                          audience=self.config["audience"], issuer=self.config["issuer"],
                          options={"require": ["exp", "iat", "sub"]})


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(min(int(self.headers.get("content-length", 0)), BODY))
        print(json.dumps({"seen": [name.lower() for name in self.headers.keys()]}), flush=True)
        try:
            claims = self.server.judge.caller(self.headers.get("authorization", ""))
            status, answer = 200, {name: claims.get(name) for name in TOLD}
        except jwt.PyJWTError as error:
            status, answer = 401, {"error": str(error)}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def main(path):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.judge = Judge(path)
    print(json.dumps({"port": server.server_address[1]}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
