"""What a handler logs, at which level."""

import json

from harness import run, wire, worker


def test_every_level_of_mcp_reaches_the_platform_and_an_unknown_one_is_refused_with_the_list():
    source = """
        import logging

        from asp_plugin import Context, plugin

        @plugin.tool
        async def main(args, ctx: Context):
            for level in args["levels"]:
                await ctx.log(level, level)
            logging.critical("by the language")
            try:
                await ctx.log("loud", "x")
            except ValueError as error:
                return str(error)
    """
    names = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke({"levels": [*names, "warn", "trace"]})
                events, end = await stream.end()
        level = wire.LogLine
        lines = [(event.log.level, event.log.severity) for event in events if event.HasField("log")]
        assert lines == [
            (level.DEBUG, ""),
            (level.INFO, ""),
            (level.INFO, "notice"),
            (level.WARN, "warning"),
            (level.ERROR, ""),
            (level.ERROR, "critical"),
            (level.ERROR, "alert"),
            (level.ERROR, "emergency"),
            (level.WARN, ""),
            (level.TRACE, ""),
            (level.ERROR, "critical"),
        ]
        assert all(name in json.loads(end.output.value) for name in ["loud", *names])

    run(test())
