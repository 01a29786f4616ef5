"""The sweep's state machine: a table and the loop that walks it.

Owns the order of things. The table is that of the sample's first specification, name for
name. What a state does is an action of
`sweep_actions.Sweep`; an action may return the event to go on with, and `SweepFault` is the event ERROR.
"""

from __future__ import annotations

import asyncio
from typing import Any

TABLE: dict[str, dict[str, Any]] = {
    "INIT": {"on": {"VALIDATE": "VALIDATING_INPUT"}},
    "VALIDATING_INPUT": {
        "onEnter": ["checkTenantAccess", "validateDateRange", "compileQuery"],
        "on": {"OK": "INDEXING", "NEEDS_INPUT": "AWAITING_INPUT", "ERROR": "FAILED"},
    },
    "AWAITING_INPUT": {
        "type": "wait-user",
        "ask": "askForPolicy",
        "on": {"INPUT_SUPPLIED": "INDEXING", "CANCEL": "CANCELLED", "ERROR": "FAILED"},
    },
    "INDEXING": {"onEnter": ["indexSources"], "on": {"OK": "SCANNING", "ERROR": "FAILED"}},
    "SCANNING": {
        "type": "parallel",
        "branches": ["SCAN_MEETINGS", "SCAN_CONTACT_CENTER", "SCAN_ADMIN"],
        "join": "AGGREGATING",
        "on": {"ERROR": "FAILED"},
    },
    "SCAN_MEETINGS": {
        "onEnter": ["listMeetings", "delegateLLMClassification"],
        "on": {"OK": "DONE_MEETINGS", "ERROR": "FAILED"},
    },
    "DONE_MEETINGS": {},
    "SCAN_CONTACT_CENTER": {
        "onEnter": ["listCalls", "delegateVoiceRedactionSuggestions"],
        "on": {"OK": "DONE_CC", "ERROR": "FAILED"},
    },
    "DONE_CC": {},
    "SCAN_ADMIN": {"onEnter": ["scanAuditLogs"], "on": {"OK": "DONE_ADMIN", "ERROR": "FAILED"}},
    "DONE_ADMIN": {},
    "AGGREGATING": {
        "onEnter": ["mergeFindings", "scoreRisk"],
        "on": {"OK": "REMEDIATION_DECISION", "ERROR": "FAILED"},
    },
    "REMEDIATION_DECISION": {
        "type": "wait-user",
        "ask": "askForApproval",
        "on": {"APPROVED": "REMEDIATING", "DECLINED": "FINALIZING", "ERROR": "FAILED"},
    },
    "REMEDIATING": {"onEnter": ["applyRemediation"], "on": {"OK": "FINALIZING", "ERROR": "FAILED"}},
    "FINALIZING": {
        "onEnter": ["composeReport", "signReport"],
        "on": {"OK": "COMPLETED", "ERROR": "FAILED"},
    },
    "COMPLETED": {"type": "terminal"},
    "FAILED": {"type": "terminal"},
    "CANCELLED": {"type": "terminal"},
}


class SweepFault(Exception):
    """The event ERROR, with what the report says of it."""


async def walk(sweep: Any) -> str:
    """Goes from the sweep's saved state to a terminal one and returns that."""
    state = sweep.saved["state"]
    while True:
        await sweep.entered(state)
        row = TABLE[state]
        if row.get("type") == "terminal":
            return state
        try:
            state = await _leave(sweep, row)
        except SweepFault as fault:
            sweep.saved["fault"] = str(fault)
            state = row["on"]["ERROR"]
        await sweep.save(state)


async def _leave(sweep: Any, row: dict[str, Any]) -> str:
    """Does what a state is for and returns the next one."""
    if row.get("type") == "parallel":
        # A fault of one branch is told when the others have finished: their work is saved.
        ends = await asyncio.gather(
            *(_branch(sweep, name) for name in row["branches"] if sweep.wants(name)),
            return_exceptions=True,
        )
        for end in ends:
            if isinstance(end, BaseException):
                raise end
        return row["join"]
    names = [row["ask"]] if "ask" in row else row.get("onEnter", [])
    event = "VALIDATE" if "VALIDATE" in row["on"] else "OK"
    for name in names:
        event = await getattr(sweep, name)() or event
    return row["on"][event]


async def _branch(sweep: Any, name: str) -> None:
    await sweep.branch_started(name)
    for action in TABLE[name]["onEnter"]:
        await getattr(sweep, action)()
    await sweep.branch_finished(name, TABLE[name]["on"]["OK"])
