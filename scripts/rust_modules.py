"""Reads which module of a crate imports which other one: from `use` statements and from paths in the code.

A module is a file; inline modules count as their file, tests do not count. What macros make is not seen.
`python3 -m doctest scripts/rust_modules.py` runs the examples.
"""

import re
from pathlib import Path

WORD = r"[A-Za-z_]\w*"
PATH = re.compile(rf"(?<![\w:])({WORD}(?:\s*::\s*{WORD})+)")
USE = re.compile(r"(?m)^[ \t]*(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);")
VISIBLE = re.compile(r"\bpub\(in [\w:]+\)")
INLINE = re.compile(rf"(#\[cfg\(test\)\]\s*)?\bmod\s+({WORD})\s*\{{")
DEPTH = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
LITERAL = re.compile(r"//[^\n]*|/\*.*?\*/|b?r(#*)\".*?\"\1|b?\"(?:\\.|[^\"\\])*\"|'(?:\\.[^']*|[^\\'])'", re.S)


def code_of(text):
    """The text without comments and literals; every character keeps its place."""
    return LITERAL.sub(lambda found: re.sub(r"[^\n]", " ", found.group(0)), text)


def closing(code, start):
    """The place of the bracket that closes the one at `start`.

    >>> closing("f(a, [b, {c}]) + (d)", 1)
    13
    """
    depth = 0
    for place in range(start, len(code)):
        depth += DEPTH.get(code[place], 0)
        if depth == 0:
            return place
    return len(code)


def inline_modules(code):
    """(start, end, name, is a test) of each module that is written out in the file."""
    return [
        (found.start(), closing(code, found.end() - 1), found.group(2), bool(found.group(1)))
        for found in INLINE.finditer(code)
    ]


def code_outside_tests(file):
    """The file's code without comments, literals and inline modules of tests."""
    code = code_of(Path(file).read_text())
    for start, end, _, is_test in reversed(inline_modules(code)):
        if is_test:
            code = code[:start] + code[end:]
    return code


def leaves(tree, before=()):
    """The paths a `use` tree names, each as a tuple of its parts."""
    tree = re.sub(rf"\s+as\s+{WORD}$", "", tree.strip())
    if not tree.endswith("}"):
        return [before + tuple(part.strip() for part in tree.split("::"))]
    brace = tree.index("{")
    before += tuple(part.strip() for part in tree[:brace].split("::") if part.strip())
    found, depth, start = [], 0, brace + 1
    for place in range(brace + 1, len(tree)):
        if tree[place] in ",}" and depth == 0:
            if tree[start:place].strip():
                found += leaves(tree[start:place], before)
            start = place + 1
        depth += {"{": 1, "}": -1}.get(tree[place], 0)
    return found


def paths_in(code):
    """Every path of at least two parts that code names, as a tuple of its parts, from `use` statements and outside of them.

    >>> sorted(paths_in("use a::{b::C, d}; fn f() { e::g::h(); }"))
    [('a', 'b', 'C'), ('a', 'd'), ('e', 'g', 'h')]
    """
    found, outside = set(), code
    for use in USE.finditer(code):
        found.update(path for path in leaves(use.group(2)) if len(path) > 1)
        outside = outside[: use.start()] + " " * (use.end() - use.start()) + outside[use.end() :]
    found.update(tuple(part.strip() for part in path.group(1).split("::")) for path in PATH.finditer(outside))
    return found


class Crate:
    """The modules below one `src` and their imports. Modules are tuples of names; the root is ()."""

    def __init__(self, source):
        self.files = {}
        for file in sorted(Path(source).rglob("*.rs")):
            parts = file.relative_to(source).with_suffix("").parts
            if parts[-1] not in ("tests", "testkit") and "tests" not in parts[:-1]:
                self.files[() if parts in (("lib",), ("main",)) else parts] = file
        self.exports = {}
        for module, file in self.files.items():
            self.note_exports(module, code_of(file.read_text()))
        self.edges = {module: self.imports(module, file) for module, file in self.files.items()}

    def note_exports(self, module, code):
        """What a module passes on under its own name, by `pub use`."""
        for use in USE.finditer(code):
            for parts in leaves(use.group(2)) if use.group(1) else []:
                target = self.resolve(parts, module)
                if target is not None:
                    self.exports[module + parts[-1:]] = target

    def module_of(self, path):
        """The module that holds an item: the longest beginning of its path that is one, past what is passed on."""
        for _ in range(8):
            known = next((path[:n] for n in range(1, len(path) + 1) if path[:n] in self.exports), None)
            if known is None:
                break
            path = self.exports[known] + path[len(known) :]
        while path and path not in self.files:
            path = path[:-1]
        return path

    def resolve(self, parts, here):
        """The absolute path; None for what lies outside the crate."""
        if parts[0] == "crate":
            return parts[1:]
        if parts[0] == "self":
            return here + parts[1:]
        if parts[0] == "super":
            ups = next((n for n, part in enumerate(parts) if part != "super"), len(parts))
            return here[: len(here) - ups] + parts[ups:] if ups <= len(here) else None
        return here + parts if here + parts[:1] in self.files else None

    def imports(self, module, file):
        code = VISIBLE.sub(lambda found: " " * len(found.group(0)), code_of(file.read_text()))
        inline = inline_modules(code)
        tests = [(start, end) for start, end, _, is_test in inline if is_test]
        found, known, uses = set(), {}, []
        for use in USE.finditer(code):
            uses.append((use.start(), use.end()))
            if any(start < use.start() < end for start, end in tests):
                continue
            here = self.here(module, inline, use.start())
            for parts in leaves(use.group(2)):
                parts = parts[:-1] if parts[-1] == "self" else parts
                target = self.resolve(parts, here)
                if target is not None:
                    found.add(self.module_of(target))
                    known[parts[-1]] = target
        for path in PATH.finditer(code):
            place = path.start()
            if any(start <= place < end for start, end in tests + uses):
                continue
            parts = tuple(part.strip() for part in path.group(1).split("::"))
            target = known[parts[0]] + parts[1:] if parts[0] in known else None
            target = target if target is not None else self.resolve(parts, self.here(module, inline, place))
            if target is not None:
                found.add(self.module_of(target))
        return found - {module}

    @staticmethod
    def here(module, inline, place):
        return module + tuple(name for start, end, name, _ in inline if start < place < end)


def circles(edges):
    """Sets of modules that reach each other (Tarjan's algorithm), larger than one.

    >>> circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [{"b", "c"}]
    True
    """
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in edges[node]:
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            at = stack.index(node)
            found.append(set(stack[at:]))
            del stack[at:]

    for node in edges:
        if node not in index:
            visit(node)
    return [circle for circle in found if len(circle) > 1]


def sibling_circles(edges):
    """Circles among the children of one parent that do not need the parent. A child stands for everything below it.

    >>> room, door, wall = ("room",), ("room", "door"), ("room", "wall")
    >>> sibling_circles({room: {door, wall}, door: {room}, wall: {room}})
    []
    >>> sibling_circles({room: {door, wall}, door: {wall}, wall: {room}})
    []
    >>> sibling_circles({room: set(), door: {wall}, wall: {door}}) == [{door, wall}]
    True
    >>> lock = ("room", "door", "lock")
    >>> sibling_circles({room: set(), door: {lock}, lock: {wall}, wall: {door}}) == [{door, wall}]
    True

    The children of the root are no siblings here: they are layers.

    >>> sibling_circles({(): set(), ("a",): {("b",)}, ("b",): {("a",)}})
    []
    """
    found = []
    for parent in sorted({module[:-1] for module in edges if len(module) > 1}):
        size = len(parent) + 1
        among = {module[:size]: set() for module in edges if len(module) >= size and module[: size - 1] == parent}
        for module, targets in edges.items():
            if module[:size] in among:
                among[module[:size]] |= {target[:size] for target in targets if target[:size] in among} - {module[:size]}
        found += circles(among)
    return found


def is_family(circle):
    """Whether a circle is a parent and its own children.

    >>> is_family({("room",), ("room", "door")}), is_family({("room", "wall"), ("room", "door")})
    (True, False)
    """
    parent = min(circle, key=len)
    return all(module[:-1] == parent for module in circle - {parent})


def name_of(module):
    return "::".join(module) or "(root)"
