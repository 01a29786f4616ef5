"""Greets someone by name."""

from dataclasses import dataclass

from asp_plugin import Context, plugin


@dataclass
class Input:
    name: str


@dataclass
class Output:
    greeting: str


@plugin.tool
async def run(args: Input, ctx: Context) -> Output:
    await ctx.progress(50, "finding the words")
    return Output(f"Hello, {args.name}!")
