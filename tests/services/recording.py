"""A service over TLS that wants a key, and a place beside it: recording.py CHAIN PRIVATE_KEY KEY_FILE.

Prints {"port": N, "other": N}, then a line for each connection that has ended: {"place": "service" or "other", "heard": all that
came, as latin-1}. The service answers a request with `x-api-key: KEY` by an item, every other one by 401; the place beside it,
without TLS, answers anything by 200.
"""

import json
import socket
import ssl
import sys
import threading

chain, private, key_file = sys.argv[1:]
with open(key_file) as file:
    key = file.read().strip()
context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
context.load_cert_chain(chain, private)
printing = threading.Lock()


def say(line):
    with printing:
        print(json.dumps(line), flush=True)


def answer(place, head):
    known = f"\r\nx-api-key: {key}" in head
    status, body = ("200 OK", {"title": "An item"}) if place == "other" or known else ("401 Unauthorized", {})
    text = json.dumps(body)
    return f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n{text}".encode()


def serve(place, connection):
    heard = b""
    answered = False
    try:
        connection.settimeout(20)
        if place == "service":
            connection = context.wrap_socket(connection, server_side=True)
        while part := connection.recv(65536):
            heard += part
            if not answered and b"\r\n\r\n" in heard:
                answered = True
                connection.sendall(answer(place, heard.split(b"\r\n\r\n")[0].decode("latin-1")))
    except OSError:
        pass
    finally:
        connection.close()
        say({"place": place, "heard": heard.decode("latin-1")})


def listen(place, listening):
    while True:
        connection, _ = listening.accept()
        threading.Thread(target=serve, args=(place, connection), daemon=True).start()


places = {"service": socket.create_server(("127.0.0.1", 0)), "other": socket.create_server(("127.0.0.1", 0))}
say({"port": places["service"].getsockname()[1], "other": places["other"].getsockname()[1]})
for place, listening in places.items():
    threading.Thread(target=listen, args=(place, listening), daemon=place == "other").start()
