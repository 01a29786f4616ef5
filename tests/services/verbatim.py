"""An MCP server (2025-11-25) that does not decode what it is given: verbatim.py [--http].

On standard input and output, or with --http on a port: then it prints {"port": n} as its first line, and takes MCP at /mcp.
The structured content of a call is the text of its arguments. The content has that text as a string, so that a client sees
what came here, and a text with half a surrogate pair. With {"large": n} among the arguments, the structured content is a
string of n letters and half a pair instead. POST to any other path is a service of JSON: {"came": the body as a string,
"data": what structured content would be}.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CUT = r'{"type":"text","text":"cut \ud800"}'
LARGE = r'{"value":"%s\ud800"}'
MEMBER = '"arguments":'
TOOL = {"name": "verbatim", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}


def quoted(text):
    return json.dumps(text, ensure_ascii=False)


def arguments_of(call):
    """The text of a call's arguments. In a string the quotes of such a member are escaped."""
    start = call.index(MEMBER) + len(MEMBER)
    _, end = json.JSONDecoder().raw_decode(call, start)
    return call[start:end]


def structured(arguments):
    letters = json.loads(arguments).get("large", 0)
    return LARGE % ("y" * letters) if letters else arguments


def result(method, text):
    """The text of a result; None for a method that is not known."""
    if method == "initialize":
        information = {"name": "verbatim", "version": "1.0.0"}
        return json.dumps(
            {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": information}
        )
    if method == "ping":
        return "{}"
    if method == "tools/list":
        return json.dumps({"tools": [TOOL]})
    if method == "tools/call":
        arguments = arguments_of(text)
        content = '[{"type":"text","text":%s},%s]' % (quoted(arguments), CUT)
        return '{"content":%s,"structuredContent":%s}' % (content, structured(arguments))
    return None


def answer(text):
    """The text of the answer to a message; None where it has none."""
    message = json.loads(text)
    if "id" not in message or "method" not in message:
        return None
    member = result(message["method"], text)
    if member is None:
        member = '"error":{"code":-32601,"message":"unknown method"}'
    else:
        member = '"result":%s' % member
    return '{"jsonrpc":"2.0","id":%s,%s}' % (json.dumps(message["id"]), member)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.say(405, "")

    def do_POST(self):
        text = self.rfile.read(int(self.headers["content-length"])).decode()
        if self.path != "/mcp":
            return self.say(200, '{"came":%s,"data":%s}' % (quoted(text), structured(text)))
        said = answer(text)
        self.say(202 if said is None else 200, said or "")

    def say(self, status, text):
        body = text.encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def serve_http():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(json.dumps({"port": server.server_address[1]}), flush=True)
    server.serve_forever()


def serve_lines():
    for line in sys.stdin.buffer:
        said = answer(line.decode())
        if said is not None:
            sys.stdout.buffer.write(said.encode() + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    serve_http() if "--http" in sys.argv else serve_lines()
