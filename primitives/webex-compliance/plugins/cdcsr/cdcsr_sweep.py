"""Cross-Domain Compliance Sweep & Remediation, the sample of the first specification.

Scans the bundled meetings, calls and audit log for what the query asks, scores it with the help of three
delegates (by rules alone where they cannot be asked, which the report says), remediates what a human
approved, and signs a report. A lost worker goes on from the last saved state.
"""

from __future__ import annotations

import asyncio
from typing import Any

from sweep_actions import Sweep
from sweep_machine import walk

from asp_plugin import Context, Result, plugin

STATUS = {"COMPLETED": "completed", "FAILED": "failed", "CANCELLED": "cancelled"}


@plugin.tool(resumable=True)
async def sweep(args: dict[str, Any], ctx: Context) -> Result:
    """Runs the state machine to its end."""
    work = Sweep(args, ctx)
    try:
        end = await walk(work)
    except asyncio.CancelledError:
        await ctx.status("CANCELLED")
        raise
    output = work.result(STATUS[end])
    if end != "FAILED":
        return Result(output)
    text = f"The sweep failed: {work.saved['fault']}."
    return Result(output, content=[{"type": "text", "text": text}], is_error=True)
