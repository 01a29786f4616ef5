"""Artifacts: bytes, files, links, and their bounds."""

import hashlib

from harness import run, wire, worker


def collect(events):
    """The bytes of each URI, checked to be without gaps."""
    stored = {}
    for event in events:
        if event.WhichOneof("payload") == "artifact_data":
            piece = event.artifact_data
            assert len(piece.data) <= 64 * 1024
            assert piece.offset == len(stored.get(piece.uri, b""))
            stored[piece.uri] = stored.get(piece.uri, b"") + piece.data
    return stored


def test_bytes_text_files_and_links_become_artifacts():
    source = """
        import asyncio, os
        from pathlib import Path
        from asp_plugin import plugin

        @plugin.tool
        async def main(args, ctx):
            path = Path(ctx.work_dir, "big.bin")
            path.write_bytes(bytes(200_000))
            return await asyncio.gather(
                ctx.artifact("a b.txt", "grüße", type="log", content_type="text/plain", description="words"),
                ctx.artifact("big", path),
                ctx.artifact("empty", b""),
                ctx.artifact("link", uri="https://example.com/x"),
            )
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                events, end = await stream.end()
        assert isinstance(end, wire.Completed)
        stored = collect(events)
        said = {event.artifact.uri: event.artifact for event in events if event.HasField("artifact")}
        assert list(said) and set(said) == {
            "report://t1/a%20b.txt",
            "report://t1/big",
            "report://t1/empty",
            "https://example.com/x",
        }
        text = said["report://t1/a%20b.txt"]
        assert (text.type, text.content_type, text.description) == ("log", "text/plain", "words")
        assert stored[text.uri].decode() == "grüße"
        assert stored["report://t1/big"] == bytes(200_000)
        for uri, content in stored.items():
            assert said[uri].size == len(content)
            assert said[uri].sha256 == hashlib.sha256(content).hexdigest()
        assert said["https://example.com/x"].size == 0
        assert said["https://example.com/x"].sha256 == ""

    run(test())


def test_an_artifact_beyond_the_limit_leaves_no_piece():
    source = """
        from asp_plugin import ArtifactError, plugin

        @plugin.tool
        def main(args, ctx):
            ctx.artifact("first", bytes(900_000))
            try:
                ctx.artifact("second", bytes(200_000))
            except ArtifactError as error:
                return str(error)
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                events, end = await stream.end()
        assert b"1000000 bytes" in end.output.value
        assert {uri: len(content) for uri, content in collect(events).items()} == {
            "report://t1/first": 900_000
        }

    run(test())


def test_a_name_is_used_once():
    source = """
        from asp_plugin import plugin

        @plugin.tool
        async def main(args, ctx):
            await ctx.artifact("name", b"1")
            await ctx.artifact("name", b"2")
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                assert (await stream.failure()).code == "ARTIFACT_REFUSED"

    run(test())


def test_what_the_platform_would_not_take_is_refused_here():
    source = """
        from asp_plugin import ArtifactError, plugin

        @plugin.tool
        async def main(args, ctx):
            refused = 0
            for name, more in (("n" * 5000, {}), ("n", {"description": "d" * 5000}), ("n", {"uri": "file:///x"})):
                try:
                    await ctx.artifact(name, b"", **more)
                except ArtifactError:
                    refused += 1
            return refused
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                events, end = await stream.end()
                assert (len(events), end.output.value) == (1, b"3")

    run(test())
