"""A tool that uses progress, a question, an artifact and cancellation."""

import asyncio
from dataclasses import dataclass
from typing import Annotated

from asp_plugin import Context, ElicitationError, Field, plugin

GREETINGS = {"en": "Hello", "de": "Hallo", "fr": "Bonjour"}


@dataclass
class Greeting:
    name: Annotated[str, {"minLength": 1, "maxLength": 100}]
    pauseSeconds: Annotated[float, "After each letter", {"minimum": 0, "maximum": 10}] = 0


@dataclass
class Greeted:
    greeting: str
    uri: Annotated[str, {"format": "uri"}]


@plugin.tool
async def greet(args: Greeting, ctx: Context) -> Greeted:
    """Greets a name, letter by letter, in a language the user chooses."""
    try:
        answer = await ctx.elicit(
            "which_language", [Field("language", "string", False, "Language (en, de, fr)")]
        )
        language = answer.fields.get("language", "en")
    except ElicitationError:
        language = "en"
    greeting = f"{GREETINGS.get(language, GREETINGS['en'])}, {args.name}!"
    written = ""
    try:
        for letter in greeting:
            written += letter
            await ctx.progress(100 * len(written) / len(greeting), written)
            await asyncio.sleep(args.pauseSeconds)
    except asyncio.CancelledError:
        # Clean up here, then let the cancel go on.
        await ctx.log("info", f"stopped after {len(written)} letters")
        raise
    uri = await ctx.artifact("greeting.txt", greeting, type="text", content_type="text/plain")
    return Greeted(greeting, uri)
