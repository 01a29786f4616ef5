"""Evaluates the alerting rules of docs/monitoring on scrapes, as Prometheus does.

A scrape is what a process answers to GET /metrics, with its time in seconds. Implemented is the part of PromQL that the rules use:
selectors with matchers, `rate` and `increase` over the scrapes in the window, `sum` and `max` with `by`, arithmetic, comparisons with a
number, `and`, `or`, and `for`. An expression with anything else is an error.

    >>> text = 'asp_up{runtime="a"} 1\\nasp_up{runtime="b"} 0\\n'
    >>> labels(evaluate('max by (runtime) (asp_up) == 0', [(0, text)]))
    [{'runtime': 'b'}]
"""

import functools
import pathlib
import re
from dataclasses import dataclass

RULES = pathlib.Path(__file__).resolve().parents[2] / "docs/monitoring/alerts.yaml"
RULE = re.compile(r"^  - alert: (?P<name>\w+)\n(?P<body>(?:    .*\n?)*)", re.MULTILINE)
EXPRESSION = re.compile(r"^    expr: (?:\|\n(?P<block>(?:      .*\n)+)|(?P<line>.*)$)", re.MULTILINE)
FOR = re.compile(r"^    for: (\w+)$", re.MULTILINE)
SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
TOKEN = re.compile(r"\s*(?:(?P<word>[a-zA-Z_:][\w:]*)|(?P<number>\d+(?:\.\d+)?)|(?P<text>\"[^\"]*\")|(?P<mark>==|!=|=~|!~|>=|<=|[-+*/(){}\[\],=<>]))")
SECONDS = {"s": 1, "m": 60, "h": 3600}
AGGREGATIONS = {"sum": sum, "max": max}
COMPARISONS = {
    ">": lambda a, b: a > b, "<": lambda a, b: a < b, ">=": lambda a, b: a >= b, "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
}
OPERATIONS = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b}


@dataclass
class Rule:
    name: str
    expression: str
    # Seconds for which it must hold.
    lasts: int


class Unsupported(Exception):
    """A rule uses what is not implemented here."""


def rules(text=None):
    """Returns the rules of the file."""
    found = []
    for match in RULE.finditer(RULES.read_text(encoding="utf-8") if text is None else text):
        expression = EXPRESSION.search(match["body"])
        lasts = FOR.search(match["body"])
        found.append(Rule(match["name"], expression["block"] or expression["line"], duration(lasts[1]) if lasts else 0))
    return found


def firing(scrapes, rule):
    """Whether a rule that is evaluated at each scrape fires at the last one."""
    since = None
    for at, (time, _) in enumerate(scrapes):
        if not evaluate(rule.expression, scrapes[: at + 1]):
            since = None
        elif since is None:
            since = time
    return since is not None and scrapes[-1][0] - since >= rule.lasts


def labels(vector):
    """Returns the labels of each element of a vector."""
    return [dict(key) for key in vector]


def duration(text):
    return int(text[:-1]) * SECONDS[text[-1]]


@functools.lru_cache(maxsize=1000)
def samples(text):
    """Returns a scrape's samples: name, labels, value."""
    found = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            match = SAMPLE.match(line)
            if not match:
                raise Unsupported(f"a line that is no sample: {line}")
            found.append((match["name"], dict(LABEL.findall(match["labels"] or "")), float(match["value"])))
    return found


def evaluate(expression, scrapes):
    """Returns the vector of an expression at the last scrape: labels and values."""
    reader = Reader(tokens(expression), scrapes)
    result = reader.either()
    if reader.tokens:
        raise Unsupported(f"{expression}: at {reader.tokens[0][1]}")
    return result


def tokens(text):
    found, at = [], 0
    while text[at:].strip():
        match = TOKEN.match(text, at)
        if not match:
            raise Unsupported(f"{text}: at {text[at:]}")
        found.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return found


class Reader:
    """Parses and evaluates in one pass, by precedence."""

    def __init__(self, tokens, scrapes):
        self.tokens = tokens
        self.scrapes = [(time, samples(text)) for time, text in scrapes]

    def next_is(self, *marks):
        return bool(self.tokens) and self.tokens[0][1] in marks

    def take(self, *marks):
        if not self.tokens or marks and self.tokens[0][1] not in marks:
            raise Unsupported(f"expected {' or '.join(marks) or 'more'}, found {self.tokens[:1]}")
        return self.tokens.pop(0)[1]

    def either(self):
        found = self.both()
        while self.next_is("or"):
            self.take()
            found = {**self.both(), **found}
        return found

    def both(self):
        found = self.comparison()
        while self.next_is("and"):
            self.take()
            other = self.comparison()
            found = {key: value for key, value in found.items() if key in other}
        return found

    def comparison(self):
        found = self.arithmetic(("+", "-"), lambda: self.arithmetic(("*", "/"), self.value))
        if not self.next_is(*COMPARISONS):
            return found
        holds = COMPARISONS[self.take()]
        bound = self.arithmetic(("+", "-"), self.value)
        if isinstance(found, float) or not isinstance(bound, float):
            raise Unsupported("only a vector is compared, and only with a number")
        return {key: value for key, value in found.items() if holds(value, bound)}

    def arithmetic(self, marks, operand):
        found = operand()
        while self.next_is(*marks):
            compute = OPERATIONS[self.take()]
            other = operand()
            if isinstance(found, float) and isinstance(other, float):
                found = compute(found, other)
            elif isinstance(other, float):
                found = {key: compute(value, other) for key, value in found.items()}
            elif isinstance(found, float):
                found = {key: compute(found, value) for key, value in other.items()}
            else:
                found = {key: compute(value, other[key]) for key, value in found.items() if other.get(key)}
        return found

    def value(self):
        kind, text = self.tokens[0] if self.tokens else (None, None)
        if text == "(":
            self.take()
            found = self.either()
            self.take(")")
            return found
        if kind == "number":
            return float(self.take())
        if kind != "word":
            raise Unsupported(f"expected a value, found {text}")
        if text in AGGREGATIONS:
            return self.aggregation()
        if text in ("rate", "increase"):
            return self.change()
        name, matchers = self.selector()
        return self.select(self.scrapes[-1][1], name, matchers)

    def aggregation(self):
        combine = AGGREGATIONS[self.take()]
        kept = []
        if self.next_is("by"):
            self.take()
            self.take("(")
            while not self.next_is(")"):
                kept.append(self.take())
                if self.next_is(","):
                    self.take()
            self.take(")")
        self.take("(")
        found = self.either()
        self.take(")")
        groups = {}
        for key, value in found.items():
            group = frozenset((name, text) for name, text in key if name in kept)
            groups.setdefault(group, []).append(value)
        return {group: combine(values) for group, values in groups.items()}

    def change(self):
        """`rate` or `increase`: between the first and the last scrape of the window; a series needs both."""
        function = self.take()
        self.take("(")
        name, matchers = self.selector()
        self.take("[")
        window = duration(self.take() + self.take())
        self.take("]")
        self.take(")")
        now = self.scrapes[-1][0]
        within = [(time, found) for time, found in self.scrapes if time >= now - window]
        if len(within) < 2:
            return {}
        (start, first), (_, last) = within[0], within[-1]
        before = self.select(first, name, matchers)
        by_second = {
            key: (value - before[key]) / (now - start)
            for key, value in self.select(last, name, matchers).items() if key in before
        }
        return by_second if function == "rate" else {key: value * window for key, value in by_second.items()}

    def selector(self):
        name, matchers = self.take(), []
        if self.next_is("{"):
            self.take()
            while not self.next_is("}"):
                label, mark, text = self.take(), self.take("=", "!=", "=~", "!~"), self.take()[1:-1]
                matchers.append((label, mark, text))
                if self.next_is(","):
                    self.take()
            self.take("}")
        return name, matchers

    @staticmethod
    def select(found, name, matchers):
        def is_wanted(labels):
            for label, mark, text in matchers:
                value = labels.get(label, "")
                is_equal = re.fullmatch(text, value) is not None if "~" in mark else value == text
                if is_equal == mark.startswith("!"):
                    return False
            return True

        return {frozenset(labels.items()): value for own, labels, value in found if own == name and is_wanted(labels)}
