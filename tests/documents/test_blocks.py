"""How blocks are found, and when an output is the one that a document shows."""

import unittest

from blocks import Malformed, read, shows

PAGE = """# Page

```sh
one
```

1. Indented:

   <!-- needs a cluster -->

   ```bash
   two \\
     more
   ```

```yaml
no: shell
```

<!-- serves: ready -->
```sh
three
```

```console
$ four \\
>   --more
first line
$ five
```
"""


class Blocks(unittest.TestCase):
    def test_every_shell_block_is_found_with_its_comment(self):
        blocks = read("page.md", PAGE)
        self.assertEqual([block.place for block in blocks], ["page.md:3", "page.md:11", "page.md:21", "page.md:25"])
        self.assertEqual([block.code for block in blocks][:2], ["one\n", "two \\\n  more\n"])
        self.assertEqual([block.excluded for block in blocks], [None, "a cluster", None, None])
        self.assertEqual([block.serves for block in blocks], [None, None, "ready", None])
        self.assertEqual(blocks[3].commands, [["four \\\n  --more", ["first line"]], ["five", []]])

    def test_a_comment_that_says_nothing_known_is_refused(self):
        for page in (
            "<!-- needs luck -->\n```sh\none\n```\n",
            "<!-- needs a cluster -->\nText.\n```sh\none\n```\n",
            "<!-- needs a cluster -->\n```yaml\nno: shell\n```\n",
            "```sh\nno end\n",
            "```console\nno command\n```\n",
        ):
            with self.assertRaises(Malformed, msg=page):
                read("page.md", page)

    def test_an_output_is_compared_by_line_with_ellipses(self):
        self.assertTrue(shows(["acme: limit 1: …", "…", "end"], "acme: limit 1: 60 calls\nmore\nmore\nend\n"))
        self.assertTrue(shows(["a…c"], "abc"))
        self.assertTrue(shows([], ""))
        for expected, output in ((["a"], "a\nb\n"), (["a", "b"], "a\n"), (["a.c"], "abc\n"), ([], "text\n")):
            self.assertFalse(shows(expected, output), msg=(expected, output))


if __name__ == "__main__":
    unittest.main()
