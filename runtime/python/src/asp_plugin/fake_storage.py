"""A storage in memory for unit tests, in place of the platform's.

Keeps true: the bounds, the order and the words are the platform's.
"""

from __future__ import annotations

import itertools
import json
import time
import unicodedata
from typing import NamedTuple

from .wire import plugin_pb2 as wire

MAX_KEY = 256
MAX_VALUE = 64 * 1024
MAX_KEYS = 1000
MAX_BYTES = 4 * 1024 * 1024
PAGE = 100
DEFAULT_TTL = 30 * 24 * 3600
MAX_TTL = 90 * 24 * 3600


class Entry(NamedTuple):
    text: bytes
    version: int
    expires: float


class Refused(Exception):
    """The word that says why there is no result."""


class FakeStorage:
    """What one plugin keeps. Give it to the contexts of several calls to test what one call leaves to the next.

    `error`: a word, such as `unavailable`, that every request gets in place of a result.
    """

    def __init__(self, error: str = "") -> None:
        self.error = error
        # By org, user ("": the whole org's) and key.
        self._entries: dict[tuple[str, str, str], Entry] = {}
        self._versions = itertools.count(1)
        self._passed = 0.0

    def advance(self, seconds: float) -> None:
        """Lets time pass, so that keys expire."""
        self._passed += seconds

    def answer(self, caller: wire.Context, asked: wire.StorageRequested) -> wire.DeliverStorageAnswer:
        """Answers a request of a call of this caller."""
        answer = wire.DeliverStorageAnswer(request_id=asked.request_id, correlation_id=asked.correlation_id)
        owner = (caller.tenant_id, caller.user_id if asked.of_user else "")
        now = time.monotonic() + self._passed
        self._entries = {key: entry for key, entry in self._entries.items() if entry.expires > now}
        try:
            if self.error:
                raise Refused(self.error)
            self._run(owner, now, asked, answer)
        except Refused as refused:
            answer.error = str(refused)
        return answer

    def _run(
        self, owner: tuple[str, str], now: float, asked: wire.StorageRequested, answer: wire.DeliverStorageAnswer
    ) -> None:
        operation = asked.WhichOneof("operation")
        if operation == "list":
            self._list(owner, asked.list, answer)
            return
        key = (*owner, checked(getattr(asked, str(operation)).key))
        if not key[2]:
            raise Refused("bad_key")
        if operation == "put":
            answer.version = self._put(key, now, asked.put)
        elif operation == "delete":
            answer.deleted = self._entries.pop(key, None) is not None
        elif key in self._entries:
            answer.value.value = self._entries[key].text
            answer.version = self._entries[key].version

    def _put(self, key: tuple[str, str, str], now: float, put: wire.StoragePut) -> int:
        text = put.value.value
        if len(text) > MAX_VALUE:
            raise Refused("too_large")
        ttl = put.ttl.ToNanoseconds() / 1e9 if put.HasField("ttl") else DEFAULT_TTL
        if not 1 <= ttl <= MAX_TTL:
            raise Refused("bad_ttl")
        try:
            json.loads(text)
        except ValueError:
            raise Refused("bad_value") from None
        known = self._entries.get(key)
        if put.HasField("if_version") and put.if_version != (known.version if known else 0):
            raise Refused("conflict")
        others = {at: entry for at, entry in self._entries.items() if at[0] == key[0] and at != key}
        size = sum(len(at[2].encode()) + len(entry.text) for at, entry in others.items())
        if len(others) >= MAX_KEYS or size + len(key[2].encode()) + len(text) > MAX_BYTES:
            raise Refused("storage_full")
        version = next(self._versions)
        self._entries[key] = Entry(text, version, now + ttl)
        return version

    def _list(self, owner: tuple[str, str], asked: wire.StorageList, answer: wire.DeliverStorageAnswer) -> None:
        prefix, after = checked(asked.prefix), checked(asked.after)
        keys = [at[2] for at in self._entries if at[:2] == owner]
        # By code points, which is the order of the bytes in UTF-8.
        found = sorted(key for key in keys if key.startswith(prefix) and key > after)
        answer.keys.extend(found[:PAGE])
        answer.has_more = len(found) > PAGE


def checked(text: str) -> str:
    """Returns a key or a prefix; Refused when it is too long or has control characters."""
    if len(text.encode()) > MAX_KEY or any(unicodedata.category(char) == "Cc" for char in text):
        raise Refused("bad_key")
    return text
