"""A plugin that misbehaves as it is told: for tests of the sandbox and of the supervisor."""

import asyncio
from typing import Any

import bombs
import deaths
import probes

from asp_plugin import Context, PluginError, plugin

# These need the event loop or the context; everything else runs in a thread.
ASYNC = {**bombs.ASYNC, **deaths.ASYNC}
MODES = {**bombs.MODES, **deaths.MODES, **probes.MODES}


@plugin.tool
async def hostile(args: dict[str, Any], ctx: Context) -> Any:
    """Does what `mode` says."""
    mode = args["mode"]
    # The test sees this and knows that the misbehaviour begins.
    await ctx.progress(1, mode)
    if mode in ASYNC:
        return await ASYNC[mode](args, ctx)
    if mode in MODES:
        return await asyncio.to_thread(MODES[mode], args)
    raise PluginError("NO_SUCH_MODE", mode)
