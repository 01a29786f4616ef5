"""A prompt with one argument."""

from asp_plugin import Message, Prompt, ReadContext, plugin


@plugin.prompt
def review(args: dict[str, str], ctx: ReadContext) -> Prompt:
    """Asks for a review of some code."""
    question = f"Review this code for faults. Be brief.\n\n{args['code']}"
    return Prompt([Message(question)], "A code review")
