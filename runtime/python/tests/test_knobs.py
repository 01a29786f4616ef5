"""The interpreter's own bounds, read back from a live worker."""

from harness import run, worker

SOURCE = """
    import faulthandler, resource, sys
    from asp_plugin import plugin

    @plugin.tool
    def main(args, ctx):
        def bound(name):
            return resource.getrlimit(getattr(resource, "RLIMIT_" + name))
        return {
            "core": bound("CORE"), "files": bound("NOFILE"), "size": bound("FSIZE"), "data": bound("DATA"),
            "recursion": sys.getrecursionlimit(), "faulthandler": faulthandler.is_enabled(),
            "isolated": sys.flags.isolated, "bytecode": sys.dont_write_bytecode,
            "path": [entry for entry in sys.path if entry.endswith("package")],
        }
"""


def test_the_limits_of_the_manifest_hold_in_the_process():
    async def test():
        limits = {"memoryBytes": 100_000_000, "files": 200, "diskBytes": 1_000_000}
        async with worker(SOURCE, limits=limits) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                assert await stream.output() == {
                    "core": [0, 0],
                    "files": [200, 200],
                    "size": [1_000_000, 1_000_000],
                    # And 256 MiB for the interpreter itself.
                    "data": [368_435_456, 368_435_456],
                    "recursion": 1000,
                    "faulthandler": True,
                    "isolated": 1,
                    "bytecode": True,
                    "path": [str(started.folder / "package")],
                }

    run(test())


def test_a_greedy_call_fails_alone():
    source = """
        from asp_plugin import plugin

        @plugin.tool
        def main(args, ctx):
            return len(bytearray(args["bytes"]))
    """

    async def test():
        async with worker(source, limits={"memoryBytes": 50_000_000}) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke({"bytes": 1_000_000_000})
                assert (await stream.failure()).code == "INTERNAL"
                await stream.invoke({"bytes": 1000})
                assert await stream.output() == 1000

    run(test())
