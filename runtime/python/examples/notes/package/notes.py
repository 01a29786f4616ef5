"""A resource template: `notes://{name}`, read from files beside this one."""

from pathlib import Path

from asp_plugin import Content, NotFound, ReadContext, plugin

NOTES = Path(__file__).parent / "notes"


@plugin.resource
def read(args: dict[str, str], ctx: ReadContext) -> Content:
    """Reads one note. A plain function: it may block, as it runs in a thread."""
    # A name from outside never becomes a path; it is looked up.
    for note in NOTES.iterdir():
        if note.stem == args["name"]:
            return Content(note.read_text("utf-8"), "text/markdown")
    raise NotFound(f"there is no note {args['name']}")


@plugin.list
def names(ctx: ReadContext) -> list[dict[str, str]]:
    """Lists the notes."""
    return [{"uri": f"notes://{note.stem}", "name": note.stem} for note in sorted(NOTES.iterdir())]
