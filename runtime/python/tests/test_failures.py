"""What an author learns of a plugin that fails: the place, the cause, and the setting that changes a limit."""

import asyncio
import errno
import os
import socket

import pytest
from harness import run, worker

from asp_plugin import failures

RAISES = """
    from asp_plugin import plugin
    from helper import look_up

    @plugin.tool
    async def main(args, ctx):
        if args["act"] == "key":
            return look_up({}, "missing")
        if args["act"] == "network":
            try:
                import socket
                raise socket.gaierror(-2, "Name or service not known")
            except OSError as error:
                raise RuntimeError("no answer") from error
        return {"text": "x" * (5 << 20)}
"""
HELPER = {
    "helper.py": """
        def look_up(table, name):
            return table[name]
    """
}


async def ends(act, **how):
    """The failure of a call, and the text that was logged before it."""
    async with worker(RAISES, files=HELPER, **how) as started:
        await started.ready()
        async with started.session() as stream:
            await stream.invoke({"act": act})
            events, end = await stream.end()
            return end, "".join(event.log.message for event in events if event.HasField("log"))


def test_in_development_the_caller_learns_what_was_raised_and_where_and_else_it_does_not():
    async def test():
        end, _ = await ends("key", development=True)
        assert (end.code, end.message) == ("INTERNAL", "helper.py:3: KeyError: 'missing'")
        end, logged = await ends("key")
        assert (end.code, end.message) == ("INTERNAL", failures.FOR_CALLERS)
        assert 'helper.py", line 3' in logged

    run(test())


def test_a_blocked_network_is_named_with_the_key_that_opens_it():
    async def test():
        end, logged = await ends("network", development=True)
        assert end.message == f"main.py:14: RuntimeError: no answer: {failures.NETWORK}"
        assert "security.allowedDomains" in logged
        assert logged.endswith(failures.NETWORK)

    run(test())


def test_a_result_that_is_too_large_is_told_with_both_sizes_and_the_way_out():
    async def test():
        end, _ = await ends("large")
        assert end.code == "INVALID_OUTPUT"
        assert end.message.startswith("the result has 5242")
        assert "allowed are 4194304" in end.message and "ctx.artifact" in end.message

    run(test())


def test_each_limit_of_the_sandbox_is_named_with_its_key():
    def met(error):
        return failures.remedy(error) or ""

    assert "runtime.resources.memory" in met(MemoryError())
    assert "runtime.resources.pids" in met(RuntimeError("can't start new thread"))
    assert "runtime.resources.pids" in met(BlockingIOError(errno.EAGAIN, "fork"))
    assert "runtime.resources.disk" in met(OSError(errno.ENOSPC, "full"))
    assert "runtime.resources.files" in met(OSError(errno.EMFILE, "many"))
    assert "security.allowedDomains" in met(OSError(errno.EAFNOSUPPORT, "socket"))
    assert "security.allowedDomains" in met(socket.gaierror(-2, "unknown"))
    assert met(ValueError("own")) == "" and met(FileNotFoundError(errno.ENOENT, "x")) == ""


def test_an_import_that_fails_shows_the_plugins_part_of_the_trace():
    async def test():
        source = "from helper import VALUE\n"
        files = {"helper.py": "TABLE = {}\nVALUE = TABLE['missing']\n"}
        async with worker(source, files=files) as started:
            assert await started.exit_code() == 78
            said = await started.stderr()
        assert 'File "main.py", line 1' in said
        assert 'File "helper.py", line 2' in said
        assert "importlib" not in said
        assert said.rstrip().splitlines()[-1] == (
            "cannot load the plugin: import main.py: helper.py:2: KeyError: 'missing'"
        )

    run(test())


def test_a_missing_module_is_shown_with_the_file_that_imports_it():
    async def test():
        async with worker("import helper\n", files={"helper.py": "\nimport requests_of_mine\n"}) as started:
            assert await started.exit_code() == 78
            said = await started.stderr()
        assert 'File "helper.py", line 2' in said
        assert "in requirements.txt beside the code: requests_of_mine" in said

    run(test())


def test_a_handler_that_blocks_the_loop_is_reported_with_its_line():
    source = """
        import time
        from asp_plugin import plugin

        @plugin.tool
        async def main(args, ctx):
            time.sleep(4)
            return 1
    """

    async def test():
        async with worker(source, development=True) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                async with asyncio.timeout(60):
                    said = (await started.process.stderr.readline()).decode()
                assert "main.py:7: time.sleep(4)" in said, said
                assert "asyncio.to_thread" in said
                await stream.end()

    run(test())


def test_paths_below_the_package_are_the_authors_own(tmp_path, monkeypatch):
    monkeypatch.setenv("ASP_PLUGIN_CODE", str(tmp_path))
    try:
        os.listdir("/nonexistent")
    except OSError as error:
        assert failures.place(error) == "", "this file is not in the package"


MISTAKES = """
    import asyncio
    from asp_plugin import plugin

    @plugin.tool
    {prefix}def main(args, ctx):
        if args["act"] == "next":
            return next(one for one in [] if one)
        if args["act"] == "await":
            return asyncio.sleep(0)
        return {{"when": float("nan")}}
"""


@pytest.mark.parametrize("prefix", ["async ", ""], ids=["async", "thread"])
def test_a_call_ends_by_what_its_handler_raises_or_returns_whatever_it_is(prefix):
    async def test():
        async with worker(MISTAKES.format(prefix=prefix), development=True) as started:
            await started.ready()
            async with started.session() as stream:
                for act, code, said in (
                    ("next", "INTERNAL", "main.py:8: RuntimeError: coroutine raised StopIteration"),
                    ("await", "INVALID_OUTPUT", "write `await` before what makes it"),
                    ("nan", "INVALID_OUTPUT", "the result is not JSON: Out of range float"),
                ):
                    await stream.invoke({"act": act}, request_id=act)
                    _, end = await stream.end(act)
                    assert end.code == code
                    assert said in end.message

    run(test())
