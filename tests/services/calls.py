"""A service that hosts calls over HTTP/JSON (docs/http-calls.md), with nothing but Python's standard library.

calls.py [PORT]: serves on 127.0.0.1 and prints {"port": N}, then a line for each thing that happens to a call.
A tool is a generator: it yields progress, a question or a pause, gets the answer, and returns an MCP tool result.
"""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

FINAL = {"success", "failed", "canceled"}
# Calls and their results are kept for so long after their end, in seconds.
KEEP = 600
MOST_CALLS = 1000
BODY = 1 << 20


def scan(arguments):
    """Looks for the words of a policy in texts."""
    texts = arguments["texts"]
    answer = yield ask_user({"message": "Which policy?", "requestedSchema": {
        "type": "object", "required": ["policy"],
        "properties": {"policy": {"type": "string", "enum": ["strict", "mild"]}}}})
    if answer.get("action") != "accept":
        raise Failure("DECLINED", "no policy was chosen")
    words = {"strict": ["secret", "internal"], "mild": ["secret"]}[answer["content"]["policy"]]
    found = []
    for number, text in enumerate(texts, 1):
        if any(word in text for word in words):
            found.append(text)
        yield {"progress": {"progress": number, "total": len(texts), "message": f"{number} of {len(texts)} texts"}}
        yield {"pause": arguments["pauseMs"] / 1000}
    label = "none"
    if found:
        message = {"role": "user", "content": {"type": "text", "text": found[0]}}
        said = yield ask_model({"messages": [message], "maxTokens": 50})
        label = said["content"]["text"] if said else "unlabelled"
    return {"structuredContent": {"found": len(found), "label": label}}


def sweep(arguments):
    """Asks for what it lacks and for what it may do, and reports. Its questions have the form of their specs."""
    yield {"progress": {"progress": 18, "total": 100, "message": "Indexing…"}}
    policy = yield ask_user({"_meta": {"asp/id": "gather_missing_policy"}, "message": "Legal Hold Policy Required"})
    if policy.get("action") != "accept":
        raise Failure("DECLINED", "no policy was named")
    message = {"role": "user", "content": {"type": "text", "text": arguments["query"]}}
    said = yield ask_model({"messages": [message], "maxTokens": 16})
    yield {"progress": {"progress": 62, "total": 100, "message": "Scanning…"}}
    approval = yield ask_user({"_meta": {"asp/id": "approve_remediation"}, "message": "Approve remediation?"})
    report = "https://reports.example.com/1/report.json"
    summary = {"policy": policy["content"]["legalHoldPolicyId"], "label": said["content"]["text"] if said else "",
               "redacted": approval.get("content", {}).get("approveRedaction", False), "reportUri": report}
    link = {"type": "resource_link", "uri": report, "name": "report.json", "mimeType": "application/json"}
    return {"content": [link], "structuredContent": {"status": "completed", "summary": summary}}


TOOLS = {"scan": scan, "sweep": sweep}
RESOURCES = {"policies": lambda query: ("text/plain", ", ".join(["strict", "mild"]).encode())}
PROMPTS = {"review": lambda arguments: {"messages": [
    {"role": "user", "content": {"type": "text", "text": f"Review {arguments['what']}."}}]}}


def ask_user(params):
    return {"status": "awaitingElicitationResult", "elicitationRequest": {"method": "elicitation/create", "params": params}}


def ask_model(params):
    return {"status": "awaitingSamplingResult", "samplingRequest": {"method": "sampling/createMessage", "params": params}}


class Failure(Exception):
    """The end of a call that the caller is told of."""

    def __init__(self, code, message):
        super().__init__(message)
        self.error = {"code": code, "message": message}


class Call:
    """One call: what it has come to, and the thread that runs it."""

    def __init__(self, tool, identity, key, arguments):
        self.key = key
        self.lock = threading.Condition()
        self.version = 1
        self.state = {"toolname": tool, "id": identity, "status": "submitted"}
        self.answer = None
        self.changed = time.monotonic()
        threading.Thread(target=self.run, args=(TOOLS[tool](arguments),), daemon=True).start()

    def set(self, **changes):
        with self.lock:
            if self.state["status"] in FINAL:
                return
            self.state.update(changes)
            if self.state["status"] not in ("awaitingElicitationResult", "awaitingSamplingResult"):
                for question in ("elicitationRequest", "samplingRequest", "serverData"):
                    self.state.pop(question, None)
            self.version += 1
            self.changed = time.monotonic()
            self.lock.notify_all()
            say(self.state["id"], self.state["status"])

    def run(self, steps):
        try:
            self.set(status="running")
            step = next(steps)
            while True:
                step = steps.send(self.do(step))
        except StopIteration as end:
            self.set(status="success", result=end.value)
        except Failure as failure:
            self.set(status="failed", error=failure.error)
        except Canceled:
            steps.close()
        except Exception as fault:  # The words of a fault are for this log alone.
            print(repr(fault), file=sys.stderr, flush=True)
            self.set(status="failed", error={"code": "INTERNAL", "message": "the tool failed"})

    def do(self, step):
        """Does one step of the tool, and returns what it waits for."""
        if "pause" in step:
            with self.lock:
                self.lock.wait_for(lambda: self.state["status"] in FINAL, step["pause"])
        elif "progress" in step:
            self.set(**step)
        else:
            self.answer = None
            # Opaque to everybody else; it comes back with the answer.
            self.set(**step, serverData={"question": self.version})
            with self.lock:
                self.lock.wait_for(lambda: self.answer or self.state["status"] in FINAL)
        if self.state["status"] in FINAL:
            raise Canceled
        return (self.answer or {}).get("result")

    def advance(self, if_match, body):
        """True when this answers the question that is open."""
        with self.lock:
            open_question = self.state.get("serverData")
            if if_match != f'"{self.version}"' or open_question is None or body.get("serverData") != open_question:
                return False
            self.answer = body
            self.set(status="running")
            return True


class Canceled(Exception):
    """The call was cancelled; its tool is closed."""


def say(identity, what):
    print(f"{identity} {what}", flush=True)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    calls = {}
    lock = threading.Lock()

    def do_PUT(self):
        body, path = self.body(), self.path.strip("/").split("/")
        if len(path) != 4 or path[0] != "tools" or path[2] != "calls" or path[1] not in TOOLS:
            return self.refuse(404, "NOT_FOUND", "no such tool")
        key = self.headers.get("Idempotency-Key")
        if not key or not isinstance(body, dict):
            return self.refuse(400, "BAD_REQUEST", "a key and an object of arguments are needed")
        with self.lock:
            self.forget()
            call = self.calls.get(path[3])
            if call is None and len(self.calls) >= MOST_CALLS:
                return self.refuse(503, "BUSY", "too many calls")
            if call is not None and call.key != key:
                return self.refuse(409, "CONFLICT", "the call was made under another key")
            new = call is None
            if new:
                call = self.calls[path[3]] = Call(path[1], path[3], key, body)
        self.reply(201 if new else 200, call)

    def do_GET(self):
        url = urlsplit(self.path)
        path = url.path.strip("/").split("/")
        if path[0] == "resources" and path[-1] in RESOURCES:
            kind, content = RESOURCES[path[-1]](parse_qs(url.query))
            return self.send(200, content, kind)
        call = self.call(path)
        if call is None:
            return self.refuse(404, "NOT_FOUND", "no such call")
        with call.lock:
            same = self.headers.get("If-None-Match") == f'"{call.version}"'
        if same:
            return self.send(304, b"")
        self.reply(200, call)

    def do_POST(self):
        body, path = self.body(), self.path.strip("/").split("/")
        if path[0] == "prompts" and path[-1] in PROMPTS:
            return self.send(200, json.dumps(PROMPTS[path[-1]](body)).encode())
        call = self.call(path[:4])
        if call is None or len(path) != 5:
            return self.refuse(404, "NOT_FOUND", "no such call")
        if path[4] == "cancel":
            call.set(status="canceled")
        elif path[4] == "advance" and not call.advance(self.headers.get("If-Match"), body):
            return self.refuse(412, "STALE", "the call has moved on")
        self.reply(200, call)

    def call(self, path):
        fits = len(path) == 4 and path[0] == "tools" and path[2] == "calls"
        with self.lock:
            return self.calls.get(path[3]) if fits else None

    def forget(self):
        old = time.monotonic() - KEEP
        for identity in [i for i, call in self.calls.items() if call.state["status"] in FINAL and call.changed < old]:
            del self.calls[identity]

    def body(self):
        length = int(self.headers.get("Content-Length") or 0)
        if length > BODY:
            return None
        try:
            return json.loads(self.rfile.read(length) or b"{}")
        except ValueError:
            return None

    def reply(self, status, call):
        with call.lock:
            self.send(status, json.dumps({**call.state, "etag": str(call.version)}).encode())

    def refuse(self, status, code, message):
        self.send(status, json.dumps({"error": {"code": code, "message": message}}).encode())

    def send(self, status, body, kind="application/json"):
        self.send_response(status)
        if status != 304:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0), Handler)
    print(json.dumps({"port": server.server_address[1]}), flush=True)
    server.serve_forever()
