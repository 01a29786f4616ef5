"""Which Rust files and lines of the repository are product and which are test, by crate.

Test is whatever lies in a folder of TEST_FOLDERS, whole crates included, and every module behind a `cfg` of `test` or of a feature
for tests: written out in the file, or a file of its own and the folder of that name. The rest is product.
`python3 -m doctest scripts/rust_sources.py` runs the examples.
"""

import re
import subprocess
from pathlib import Path

from rust_modules import LITERAL, closing, code_of

TEST_FOLDERS = {"tests", "examples", "benches", "fuzz"}
# A module behind a condition; whether that is one of tests, FOR_TESTS says.
CONDITIONAL = re.compile(
    r"#\[cfg\((?P<condition>[^\]]*)\)\]\s*(?P<attributes>(?:#\[[^\]]*\]\s*)*)"
    r"(?:pub(?:\([^)]*\))?\s+)?mod\s+(?P<name>\w+)\s*(?P<body>[;{])"
)
FOR_TESTS = re.compile(r"\btest(kit|ing)?\b")
PATH = re.compile(r'#\[path\s*=\s*"([^"]+)"\]')
PACKAGE = re.compile(r'(?ms)^\[package\]$.*?^name = "([^"]+)"$')


def blanked(text, start, end):
    """The text with everything from `start` to `end` blank; each character and line keeps its place."""
    return text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]


def lines_in(text):
    """Number of lines that are not blank.

    >>> lines_in("a\\n  \\n\\nb")
    2
    """
    return sum(1 for line in text.split("\n") if line.strip())


class Source:
    """A Rust file: its path in the repository, the package of its lines, its text, and its code without comments and literals.

    >>> text = "struct A;\\n#[cfg(test)]\\nmod tests {\\n  struct B;\\n}\\n#[cfg(feature = \\"testkit\\")]\\nmod keys;\\n"
    >>> source = Source(Path("a/src/call.rs"), "a", text)
    >>> source.text.split()
    ['struct', 'A;', '#[cfg(feature', '=', '"testkit")]', 'mod', 'keys;']
    >>> source.test_lines, source.test_files
    (4, [PosixPath('a/src/call/keys.rs')])
    >>> Source(Path("a/tests/it.rs"), "a", "struct A;").text.strip()
    ''
    """

    def __init__(self, path, crate, text):
        self.path, self.crate, self.text, self.code = path, crate, text, code_of(text)
        self.test_lines, self.test_files = 0, []
        if TEST_FOLDERS.intersection(path.parts):
            self.becomes_test()
            return
        for found in CONDITIONAL.finditer(self.code):
            condition = text[found.start("condition") : found.end("condition")]
            if "not(" in condition or not FOR_TESTS.search(condition):
                continue
            if found["body"] == ";":
                self.test_files.append(self.file_of(found["name"], text[found.start("attributes") : found.end("attributes")]))
            else:
                self.cut(found.start(), closing(self.code, found.end() - 1) + 1)

    def cut(self, start, end):
        """Moves a part of the file from product to test."""
        self.test_lines += lines_in(self.text[start:end])
        self.text, self.code = blanked(self.text, start, end), blanked(self.code, start, end)

    def becomes_test(self):
        self.cut(0, len(self.text))

    def literals(self):
        """(line, literal) of each line of a literal of the product.

        >>> text = 'const A: &str = "b";\\n// "c"\\nf("d\\n  e");\\n#[cfg(test)]\\nmod tests {\\n  const F: &str = "g";\\n}\\n'
        >>> list(Source(Path("a/src/call.rs"), "a", text).literals())
        [(1, '"b"'), (3, '"d'), (4, '  e"')]
        """
        for found in LITERAL.finditer(self.text):
            if not found[0].startswith(("//", "/*")):
                first = self.text.count("\n", 0, found.start()) + 1
                yield from enumerate(found[0].split("\n"), first)

    def file_of(self, module, attributes):
        """Path of the file that `mod module;` declares here."""
        given = PATH.search(attributes)
        if given:
            return self.path.parent / given[1]
        is_root = self.path.parent.name == "src" and self.path.stem in ("lib", "main")
        return (self.path.parent if is_root else self.path.with_suffix("")) / f"{module}.rs"


def tracked(root, *patterns):
    """Files that Git tracks or would track, in order."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns]
    names = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\0")
    return [Path(name) for name in sorted(set(names)) if name and (root / name).is_file()]


def crate_folders(root):
    """The package of each crate's folder; to a test crate below a product crate, that one's."""
    names = {}
    for manifest in tracked(root, "Cargo.toml", "*/Cargo.toml"):
        found = PACKAGE.search((root / manifest).read_text(encoding="utf-8"))
        if found:
            names[manifest.parent] = found[1]
    for folder in list(names):
        above = next((up for up in folder.parents if up in names), None)
        if above is not None and TEST_FOLDERS.intersection(folder.parts):
            names[folder] = names[above]
    return names


def sources(root):
    """Every Rust file of every crate below `root`."""
    crates, found = crate_folders(root), []
    for path in tracked(root, "*.rs"):
        crate = next((crates[up] for up in path.parents if up in crates), None)
        if crate is not None:
            found.append(Source(path, crate, (root / path).read_text(encoding="utf-8")))
    only_tests = {file for source in found for file in source.test_files}
    for source in found:
        if only_tests.intersection({source.path, *(up.parent / f"{up.name}.rs" for up in source.path.parents)}):
            source.becomes_test()
    return found
