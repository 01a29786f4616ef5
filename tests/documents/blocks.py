"""Shell blocks of a Markdown document, and what a comment before one says about how it is run.

`sh` and `bash` blocks are commands. A `console` block has commands after `$ ` and the output that each of them prints, where `…`
stands for any text. A comment directly before a block excludes it for one of three reasons, or names the line that it prints
when it serves, if it then runs until somebody stops it.
"""

import re
from dataclasses import dataclass, field

REASONS = ("a cluster", "an account", "over 5 minutes")
SHELLS = ("sh", "bash", "shell", "console")
FENCE = re.compile(r"^(?P<indent> *)(?P<fence>```+|~~~+)(?P<language>[\w-]*)\s*$")
EXCLUDED = re.compile(r"^<!-- needs (.+) -->$")
SERVES = re.compile(r"^<!-- serves: (.+) -->$")


class Malformed(Exception):
    """A block or its comment cannot be read."""


@dataclass
class Block:
    """One shell block. `line` is that of its fence."""

    document: str
    line: int
    language: str
    code: str
    excluded: str | None = None
    serves: str | None = None
    # Of a console block: each command with the output that the document shows.
    commands: list = field(default_factory=list)

    @property
    def place(self):
        return f"{self.document}:{self.line}"


def read(document, text):
    """Returns the shell blocks of a document in their order."""
    lines = text.splitlines()
    found = []
    comment = None
    at = 0
    while at < len(lines):
        fence = FENCE.match(lines[at])
        if not fence:
            stripped = lines[at].strip()
            if stripped.startswith(("<!-- needs", "<!-- serves")):
                comment = (at + 1, stripped)
            elif stripped and comment:
                raise Malformed(f"{document}:{comment[0]}: no shell block follows `{comment[1]}`")
            at += 1
            continue
        end = next((n for n in range(at + 1, len(lines)) if lines[n].strip() == fence["fence"]), None)
        if end is None:
            raise Malformed(f"{document}:{at + 1}: the block has no end")
        if fence["language"] in SHELLS:
            indent = len(fence["indent"])
            code = "\n".join(line[indent:] if line[:indent].isspace() else line for line in lines[at + 1:end]) + "\n"
            found.append(_block(document, at + 1, fence["language"], code, comment))
        elif comment:
            raise Malformed(f"{document}:{comment[0]}: no shell block follows `{comment[1]}`")
        comment = None
        at = end + 1
    return found


def _block(document, line, language, code, comment):
    block = Block(document, line, language, code)
    if comment:
        at, text = comment
        excluded, serves = EXCLUDED.match(text), SERVES.match(text)
        if excluded and excluded[1] in REASONS:
            block.excluded = excluded[1]
        elif serves and language != "console":
            block.serves = serves[1]
        else:
            raise Malformed(f"{document}:{at}: `{text}` is none of: needs {', '.join(REASONS)}; serves: TEXT")
    if language == "console":
        block.commands = _commands(block.place, code)
    return block


def _commands(place, code):
    commands = []
    for line in code.splitlines():
        if line.startswith("$ "):
            commands.append([line[2:], []])
        elif not commands:
            raise Malformed(f"{place}: a console block begins with `$ `")
        elif commands[-1][0].endswith("\\") and not commands[-1][1]:
            commands[-1][0] += "\n" + line.removeprefix("> ")
        else:
            commands[-1][1].append(line)
    return commands


def shows(expected, output):
    """Whether an output is what a document shows: every line in its order, `…` for any text, a line `…` for any lines."""
    lines = [line.rstrip() for line in output.rstrip("\n").splitlines()]
    pattern = ""
    for line in expected:
        if line.strip() == "…":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += "[^\n]*".join(re.escape(part) for part in line.rstrip().split("…")) + r"\n"
    return re.fullmatch(pattern, "".join(line + "\n" for line in lines)) is not None
