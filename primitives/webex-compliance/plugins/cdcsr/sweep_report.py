"""The sweep's documents: the signed report, the findings as CSV, the log.

Keeps true: the report's bytes are canonical (sorted keys, no spaces), so that anyone can check the signature;
no document holds what was found, only where and of which kind.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import os
from typing import Any

import ed25519

COLUMNS = ("id", "domain", "at", "kinds", "score", "scoredBy", "redacted", "quarantined")


def summary(saved: dict[str, Any]) -> dict[str, Any]:
    """The numbers of the output's `summary`, from what is known so far."""
    findings = saved["findings"]
    by_domain = {domain: 0 for domain in saved["scanned"]}
    for finding in findings:
        by_domain[finding["domain"]] += 1
    return {
        "totalItems": sum(saved["scanned"].values()),
        "flaggedItems": len(findings),
        "byDomain": by_domain,
        "remediation": {
            "redacted": sum(finding["redacted"] for finding in findings),
            "quarantined": sum(finding["quarantined"] for finding in findings),
        },
    }


def compose(task_id: str, arguments: dict[str, Any], saved: dict[str, Any], now: str) -> dict[str, Any]:
    """The report itself; `generatedAt` is its only time that differs between two runs."""
    return {
        "taskId": task_id,
        "tenantId": arguments["tenantId"],
        "query": arguments["query"],
        "dateRange": arguments["dateRange"],
        "severityThreshold": saved["threshold"],
        "legalHoldPolicyId": saved["policy"],
        "generatedAt": now,
        "summary": summary(saved),
        "findings": saved["findings"],
        "voiceRedactions": saved["voice"],
        "scoring": saved["scoring"],
        "notHeld": saved["not_held"],
    }


def signed(report: dict[str, Any]) -> bytes:
    """The report with its signature, as JSON.

    A plugin holds no secrets, so the key is made for this report and thrown away. The signature shows that
    the report was not changed after it was made; who made it, the platform's audit says.
    """
    secret = os.urandom(32)
    value = ed25519.sign(secret, canonical(report))
    signature = {
        "algorithm": "Ed25519",
        "publicKey": base64.b64encode(ed25519.public_key(secret)).decode(),
        "value": base64.b64encode(value).decode(),
        "over": "the JSON of `report` in UTF-8 with sorted keys and without spaces",
        "note": "the key was made for this report alone and is not kept: it proves integrity, not origin",
    }
    return json.dumps({"report": report, "signature": signature}, ensure_ascii=False, indent=2).encode()


def canonical(report: dict[str, Any]) -> bytes:
    """What is signed."""
    return json.dumps(report, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def table(findings: list[dict[str, Any]]) -> str:
    """The findings as CSV (RFC 4180)."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\r\n")
    writer.writeheader()
    for finding in findings:
        writer.writerow({**finding, "kinds": " ".join(finding["kinds"])})
    return text.getvalue()
