"""Each friction of `first_day.tsv` has a test that exists, or words that its document has."""

import pathlib
import re
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# How a test is named in its language.
TEST = r"(?:fn|def|void) {name}\b|test\('{name}'"
# Fewer means that lines were lost.
LEAST = 75


def rows():
    lines = (HERE / "first_day.tsv").read_text().splitlines()
    return [line.split("\t") for line in lines if line and not line.startswith("#")]


def fault(file, proof):
    """Returns why a proof does not hold, or `None`."""
    path = ROOT / file
    if not path.is_file():
        return "no such file"
    text = path.read_text()
    if path.suffix == ".md":
        return None if " ".join(proof.split()) in " ".join(text.split()) else "no such words"
    if proof.startswith('"'):
        # A group of documents, whose trial has its name.
        return None if proof in text else "no such group"
    return None if re.search(TEST.replace("{name}", re.escape(proof)), text) else "no such test"


class FirstDay(unittest.TestCase):
    def test_every_friction_has_a_proof_that_exists(self):
        self.assertGreaterEqual(len({friction for friction, _, _ in rows()}), LEAST)
        found = [f"{friction}: {file}: {proof}: {fault(file, proof)}" for friction, file, proof in rows() if fault(file, proof)]
        self.assertEqual(found, [])

    def test_a_proof_that_is_not_there_is_a_fault(self):
        for file, proof in (("README.md", "words that it does not have"), ("tests/e2e/documents.rs", "no_such_test"),
                            ("tests/e2e/documents.rs", '"no_such_group"'), ("no/such/file", "of")):
            self.assertIsNotNone(fault(file, proof), (file, proof))


if __name__ == "__main__":
    unittest.main()
