"""Rules of prose in Rust code that a program can check; scripts/check-prose lists what breaks them.

Every rule takes a Source of scripts/rust_sources.py and gives pairs: a place in its text, and what is wrong there. A word's class
is guessed from lists and endings, so a rule errs now and then; the lists are the place to mend that.
`python3 -m doctest scripts/prose_rules.py` runs the examples.
"""

import re
from functools import cache
from pathlib import Path

from rust_modules import DEPTH, LITERAL, closing
from rust_sources import Source

# A noun phrase or a verb opens with none of these. `Whether` opens a flag, and a condition may come first: `When …, …`.
CLAUSES = (
    "What Who Whose Whom Which That Where Why How Whoever Whatever Whichever Wherever Whenever As So Since Until While Because And "
    "Or But Too"
)
PREPOSITIONS = (
    "Of By In From At With Without For On To Out Up Over Under Between Beside Beyond Below Above After Before Instead During "
    "Within Through Against Per"
)
PRONOUNS = "It They There Nobody Somebody Something Nothing Not"
OPENING = re.compile(rf"(?:(?:{'|'.join(f'{CLAUSES} {PREPOSITIONS} {PRONOUNS}'.split())})\b|When\b[^.,;:]*(?:[.;:]|$))", re.I)

DOC = re.compile(r"(?m)^[ \t]*//([/!])(?!/).*(?:\n[ \t]*//\1(?!/).*)*")
TYPE = re.compile(r"(?m)^([ \t]*)(?:pub(?:\([^)]*\))?\s+)?(?:unsafe\s+)?(?:struct|enum|union|trait|(type))\s+([A-Z]\w*)")
WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z]*")

IRREGULAR = set(
    "Asked Began Begun Broken Brought Built Chosen Drawn Found Given Gone Got Heard Held Hidden Kept Known Learnt Left Lent Lost "
    "Made Meant Met Overtaken Rebuilt Said Seen Sent Shown Spent Sworn Taken Thrown Told Unheld Unkept Unknown Unread Unsent Untold "
    "Withdrawn Written Wrote".split()
)
# Words of the endings of participles that are nouns, and `Shared`, the usual name of what clones of a handle have in common.
NOUNS = set(
    "Embed Feed Need Seed Shared Speed "
    "Accounting Binding Building Caching Encoding Finding Framing Hashing Heading Listing Logging Mapping Meaning Padding Pairing "
    "Ping Ranking Rating Reading Ring Routing Ruling Sampling Scheduling Setting Signing Staging String Thing Timing Tracing Warning".split()
)
NO_NOUNS = set(
    # Pronouns, adverbs, prepositions, conjunctions.
    "About After Again Aside At Away Before Beside By During Elsewhere From How In Many Meanwhile Most Nobody Of Off On Once One "
    "Only Out Over Since Somebody Together Twice Until What When Where Which Who Whole Whose With "
    # Verbs.
    "Accepts Asks Has Keeps Knows Makes Says Stands Suits Takes Tells Wants "
    # Adjectives.
    "Ambiguous Common Foreign Former Full Large Longest Modern Plain Recent Strict Unfit Usual".split()
)

FUNCTION = re.compile(r"\bfn\s+(?:r#)?([a-z_]\w*)")
# Words that say nothing to a reader in the name of a function; a name of one word is no irregular participle either.
DIALECT = set("anew asked beside elsewhere heard kept lent meanwhile said told who whoever whom whose".split())
PARTICIPLES = {word.lower() for word in IRREGULAR} - {"hidden", "unknown"}
# `there is no tool` is plain English, `it is no tool` is not.
PRIVATE = re.compile(r"\b(?:anew|beside|meanwhile|whoever|way out|(?<!there )(?:is|are) no (?!longer|more|less))\b", re.I)

LOG = re.compile(r"\b(?:tracing::)?(?:error|warn|info|debug|trace|event)!\s*([(\[{])")
VALUE = re.compile(r"(?<!\{)\{(?!\{)")
# Names that begin with a capital letter wherever they stand.
PROPER = set("Envoy Java Kubernetes Linux Node Postgres Prometheus Python Redis".split())

CLAP = re.compile(r"#\[derive\([^)]*\b(?:Args|Parser|Subcommand|ValueEnum)\b[^)]*\)\][^{};]*\{")
HELP = re.compile(r'(?<!let )\b(?:about|help)\s*[=(]\s*("(?:\\.|[^"\\])*")', re.S)


def opens_badly(text):
    """Whether a text opens with neither a noun phrase nor a verb.

    >>> [opens_badly(text) for text in ("What is kept.", "By whom", "When it began.", "it is done")]
    [True, True, True, True]
    >>> [opens_badly(text) for text in ("Lease of a call.", "Returns it.", "Whether it is open.", "When open, closes it.")]
    [False, False, False, False]
    >>> [opens_badly(text) for text in ("Information", "Format", "`None`: no file")]
    [False, False, False]
    """
    return bool(OPENING.match(text))


def comments(text):
    """(place, first paragraph) of each doc comment."""
    for comment in DOC.finditer(text):
        lines = [line.strip()[3:].strip() for line in comment[0].split("\n")]
        yield comment.start(), " ".join(lines[: lines.index("")] if "" in lines else lines)


@cache
def clap_items(source):
    """(start, end) of each item from which clap derives, its own doc comment included."""
    items = []
    for found in CLAP.finditer(source.code):
        start = found.start()
        while True:
            above = source.text.rfind("\n", 0, max(start - 1, 0)) + 1
            if start == 0 or not source.text[above:start].lstrip().startswith(("///", "#[")):
                break
            start = above
        items.append((start, closing(source.code, found.end() - 1)))
    return items


def is_help(source, place):
    return any(start <= place < end for start, end in clap_items(source))


def openings(source):
    """Doc comments that open with neither a noun phrase nor a verb.

    >>> breaches(openings, "/// What is kept.\\n/// By whom.\\nstruct A;\\n/// Rows.\\n///\\n/// By age.\\nstruct B;")
    ['What is kept. By whom.']
    """
    for place, text in comments(source.text):
        if opens_badly(text) and not is_help(source, place):
            yield place, text


@cache
def types(source):
    """(place, name) of each type; not associated types, which a trait names."""
    return [(found.start(3), found[3]) for found in TYPE.finditer(source.code) if not (found[1] and found[2])]


def is_noun(name):
    """Whether a type's last word may be a noun.

    >>> [is_noun(name) for name in ("Lease", "CallStatus", "IpRing", "Speed", "HTTPError", "Shared")]
    [True, True, True, True, True, True]
    >>> [is_noun(name) for name in ("Lent", "ToolListed", "Waiting", "Whose", "UserAsks", "Kept2")]
    [False, False, False, False, False, False]
    """
    word = WORDS.findall(name)[-1]
    return word in NOUNS or not (word in IRREGULAR or word in NO_NOUNS or word.endswith(("ed", "ing")))


def names(source):
    """Types named by a participle or by what is no noun.

    >>> breaches(names, "struct Told;\\nimpl A {\\n    type Taken = u8;\\n}\\npub(crate) enum Answer {}")
    ['Told']
    """
    for place, name in types(source):
        if not is_noun(name):
            yield place, name


def functions(source):
    """Functions named by a word of the project's own, or by a participle alone.

    >>> breaches(functions, "fn told() {}\\nfn is_asked_for() {}\\nfn taken() {}\\nfn take_sample() {}\\nfn is_taken() {}\\nfn heading() {}")
    ['told', 'is_asked_for', 'taken']
    """
    for found in FUNCTION.finditer(source.code):
        if found[1] in PARTICIPLES or DIALECT.intersection(found[1].split("_")):
            yield found.start(1), found[1]


def texts(source):
    """String literals with words of the project's own, such as errors.

    >>> breaches(texts, 'f("it is no tool"); g("there is no tool, it is no longer served"); h("opened anew"); // whoever')
    ['is no ', 'anew']
    """
    for literal in LITERAL.finditer(source.text):
        word = None if literal[0].startswith(("//", "/*", "'")) else PRIVATE.search(re.sub(r"\\\n\s*", "", literal[0]))
        if word:
            yield literal.start(), word[0]


def arguments(source, start, end):
    """(start, end) of each argument between the brackets of a macro."""
    depth, begin = 0, start
    for place in range(start, end):
        char = source.code[place]
        depth += DEPTH.get(char, 0)
        if char == "," and depth == 0:
            yield begin, place
            begin = place + 1
    yield begin, end


def literal(text):
    """The content of a text that is one string literal, or None.

    >>> literal(' "a \\\\\\n   b" '), literal('name = "a"'), literal("name")
    ('a b', None, None)
    """
    match = re.fullmatch(r'\s*r?(#*)"(.*)"\1\s*', text, re.S)
    return re.sub(r"\\\n\s*", "", match[2]) if match else None


def log_fault(message):
    """What is wrong with the message of a log line, or None.

    >>> log_fault("lease renewal failed"), log_fault("Envoy is ready"), log_fault("HTTP is off"), log_fault("{{}} is empty")
    (None, None, None, None)
    >>> for message in ("lease {id} failed", "lease failed.", "Lease failed", "what failed is off"):
    ...     print(log_fault(message))
    values in the message
    a period at the end
    a capital at the start
    no subject at the start
    """
    word = re.match(r"\w*", message)[0]
    if VALUE.search(message):
        return "values in the message"
    if message.rstrip().endswith((".", "!")):
        return "a period at the end"
    if re.match(r"[A-Z][a-z]+$", word) and word not in PROPER:
        return "a capital at the start"
    return "no subject at the start" if opens_badly(message) else None


def logs(source):
    """Log lines whose message is not constant, or no plain statement.

    >>> breaches(logs, 'tracing::warn!(%error, id = f(a, b), "lease {} failed", id); warn!(x); info!("ready");')
    ['values in the message: lease {} failed', 'no message']
    """
    for call in LOG.finditer(source.code):
        parts = arguments(source, call.end(), closing(source.code, call.start(1)))
        message = next((text for start, end in parts if (text := literal(source.text[start:end])) is not None), None)
        fault = "no message" if message is None else log_fault(message)
        if fault:
            yield call.start(), fault if message is None else f"{fault}: {message}"


def help_fault(text):
    """What is wrong with a help text, or None.

    >>> help_fault("Prints JSON"), help_fault("User of the rule [default: everyone]"), help_fault("`mcp` or `rest`")
    (None, None, None)
    >>> help_fault("Whom it is about"), help_fault("Prints JSON."), help_fault("a user")
    ('neither a noun nor a verb at the start', 'a period at the end', 'no capital at the start')
    """
    if opens_badly(text):
        return "neither a noun nor a verb at the start"
    if text.endswith(".") and not text.endswith("..."):
        return "a period at the end"
    return "no capital at the start" if text[:1].islower() else None


def helps(source):
    """Help texts of the command line that are neither noun phrases nor sentences with a verb first.

    >>> breaches(helps, '/// The tool.\\n#[derive(Args)]\\nstruct A {\\n    /// For programs\\n    json: bool,\\n}\\n/// By age.')
    ['a period at the end: The tool.', 'neither a noun nor a verb at the start: For programs']
    >>> breaches(helps, 'arg.help("what it takes").about("Takes it")')
    ['neither a noun nor a verb at the start: what it takes']
    """
    texts = [(place, text) for place, text in comments(source.text) if is_help(source, place)]
    texts += [(given.start(1), literal(given[1])) for given in HELP.finditer(source.text)]
    for place, text in texts:
        fault = help_fault(text)
        if fault:
            yield place, f"{fault}: {text}"


def breaches(rule, text):
    """A rule's findings in a text, for the examples."""
    return [what for _, what in rule(Source(Path("a/src/lib.rs"), "a", text))]
