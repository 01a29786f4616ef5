"""A prompt with two arguments; the first is completed here, by what is known of the second."""

from asp_plugin import plugin

PLACES = ["paris", "park", "party"]


@plugin.prompt
def main(args, ctx):
    return f"Prompt with arguments: arg1='{args['arg1']}', arg2='{args['arg2']}'"


@plugin.complete
def offers(argument, value, known, ctx):
    beside = f" ({known['arg2']})" if "arg2" in known else ""
    return [place + beside for place in PLACES if place.startswith(value)]
