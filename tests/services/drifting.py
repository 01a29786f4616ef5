"""An MCP server (2025-11-25, without sessions) whose tools are what a file says: drifting.py FILE.

Prints {"port": n} as its first line. The file is read at every request, so that whoever changes it changes the tools. A
call answers with its own arguments. Anything else than MCP by POST is answered with its method and path, as a service
of JSON over HTTP.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/mcp":
            return self.say(405, None)
        self.say(200, {"method": self.command, "path": self.path})

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "id" not in message or "method" not in message:
            return self.say(202, None)
        result = answer(message["method"], message.get("params", {}))
        reply = {"jsonrpc": "2.0", "id": message["id"]}
        if result is None:
            reply["error"] = {"code": -32601, "message": "unknown method"}
        else:
            reply["result"] = result
        self.say(200, reply)

    def say(self, status, body):
        text = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def answer(method, params):
    if method == "initialize":
        return {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "drifting", "version": "1.0.0"},
        }
    if method == "tools/list":
        return {"tools": json.loads(Path(sys.argv[1]).read_text())}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": json.dumps(params.get("arguments", {}), sort_keys=True)}]}
    return None


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(json.dumps({"port": server.server_address[1]}), flush=True)
    server.serve_forever()
