#!/usr/bin/env python3
"""Runs the shell blocks of the documents as they stand: `run.py GROUP`, where a group is a row of `GROUPS`.

The blocks of a document run in their order, by bash, in one directory that looks like a checkout after `make run`; variables, functions
and the directory pass from one to the next. A block fails if a command of it fails, or prints something else than the document
shows. All blocks run, whatever fails. `given/GROUP.sh` runs first: it makes what a reader of the page brings along.

`run.py --check` compares the groups with the documents, counts the blocks that are not run, and fails if these are more than a
fifth. `run.py --groups` prints the groups that are run by the end-to-end tests.

The environment names the programs as for the other tests: `ASP_BIN`, `ASP_RUNTIME_BIN`, `ASP_FILTER_WASM`, `.tools/env`.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

import blocks

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# Share of all blocks that may be left out, in percent.
MOST_EXCLUDED = 20
# Bound on one block, in seconds: what takes longer is marked.
BLOCK = 300
# Bound on the start of what serves.
START = 150
# The end of an output that a failure shows, in characters.
TAIL = 3000
# Servers of the repository that the documents name; `given/primitives` has those of their examples.
SERVERS = ("a2a-conformance", "demo", "webex-compliance")
# Installed tools that commands find by the environment.
TOOLS = (
    "ASP_ENVOY_BIN", "ASP_EVERYTHING_JS", "ASP_FILTER_WASM", "ASP_NODE_BIN", "ASP_PLUGIN_JAVA", "ASP_PLUGIN_JAVA_SHIM",
    "ASP_PLUGIN_NODE", "ASP_PLUGIN_NODE_SHIM", "ASP_PLUGIN_PYTHON", "ASP_POSTGRES_DIR", "ASP_PYTHON_BIN", "ASP_RUNTIME_BIN",
)
PORTS = ("ASP_PORT", "ASP_ADMIN_PORT", "ASP_GATEWAY_PORT", "ASP_XDS_PORT", "ASP_ENVOY_ADMIN_PORT")


@dataclass(frozen=True)
class Group:
    """Documents that share a directory, and what they need."""

    documents: tuple
    platform: bool = False
    # Whether the Inspector is there, as after its first use.
    inspector: bool = False
    # Whether it runs with the end-to-end tests; else by the script that makes what it needs.
    end_to_end: bool = True


GROUPS = {
    "readme": Group(("README.md",), platform=True, inspector=True),
    "access": Group(("docs/identity.md", "docs/linked-accounts.md", "docs/policy.md"), platform=True),
    "admin": Group(("docs/admin.md", "docs/audit.md", "docs/usage.md"), platform=True),
    "authors": Group(("docs/plugins.md",), platform=True, inspector=True),
    "callers": Group(("docs/a2a.md", "docs/clients.md", "docs/rest.md", "docs/limits.md"), platform=True, inspector=True),
    "files": Group(("docs/certificates.md", "docs/databases.md", "docs/operator-lists.md", "docs/settings.md", "docs/vault.md")),
    "imports": Group(("docs/upstreams.md",), platform=True),
    "install": Group(("docs/install.md",), end_to_end=False),
    "operators": Group(("docs/operations.md", "docs/upgrade.md", "docs/release.md"), platform=True),
    "places": Group(("docs/pools.md", "docs/regions.md"), platform=True),
    "presets": Group((
        "docs/issuers/auth0.md", "docs/issuers/authentik.md", "docs/issuers/entra.md",
        "docs/issuers/google.md", "docs/issuers/keycloak.md", "docs/issuers/okta.md",
    ), end_to_end=False),
    "traces": Group(("docs/traces.md",)),
}


def documents():
    """Returns every document with shell blocks, and its blocks."""
    found = {}
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        name = str(path.relative_to(ROOT))
        parsed = blocks.read(name, path.read_text())
        if parsed:
            found[name] = parsed
    return found


def check():
    """Returns the faults of the groups and of the excluded blocks."""
    found = documents()
    grouped = [document for group in GROUPS.values() for document in group.documents]
    faults = [f"{document}: in no group of tests/documents/run.py" for document in found if document not in grouped]
    faults += [f"{document}: has no shell block, or is in two groups" for document in set(grouped)
               if document not in found or grouped.count(document) > 1]
    every = [block for parsed in found.values() for block in parsed]
    excluded = [block for block in every if block.excluded]
    for reason in blocks.REASONS:
        print(f"needs {reason}: {sum(block.excluded == reason for block in excluded)}")
    print(f"{len(excluded)} of {len(every)} shell blocks are not run")
    if len(excluded) * 100 > MOST_EXCLUDED * len(every):
        faults.append(f"more than {MOST_EXCLUDED} % of the shell blocks are not run: "
                      + ", ".join(block.place for block in excluded))
    return faults


class Failed(Exception):
    """A block or the platform failed; its text has the output."""


class Reader:
    """Somebody who types what documents show."""

    def __init__(self, work, group):
        self.work, self.group = work, group
        self.home, self.checkout, self.state = work / "home", work / "asp", work / "state.sh"
        self.serving = None
        self.platform = None
        # Process group of what `given` started.
        self.given = None
        self.environment = self._environment()
        self._lay_out()

    def _environment(self):
        """The caller's environment, without the settings of the platform; the programs are on the path."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ASP_")}
        if self.group.end_to_end:
            kept |= {name: program(name) for name in TOOLS}
        home = pathlib.Path.home()
        kept |= {
            "HOME": str(self.home), "ASP_TRUST_BUILDS": "true", "NPM_CONFIG_CACHE": str(home / ".npm"),
            # The registry fails now and then.
            "NPM_CONFIG_PREFER_OFFLINE": "true", "NPM_CONFIG_FETCH_RETRIES": "5",
            "PATH": f"{self.work / 'bin'}:{pathlib.Path(program('ASP_NODE_BIN')).parent}:{kept['PATH']}",
        }
        # Whatever a page starts takes free ports.
        kept |= {name: "0" for name in PORTS}
        if (home / ".npmrc").exists():
            kept["NPM_CONFIG_USERCONFIG"] = str(home / ".npmrc")
        return kept

    def _lay_out(self):
        for folder in (self.home, self.checkout, self.work / "bin", self.checkout / "target/release"):
            folder.mkdir(parents=True)
        # A refusal counts as a failure, as somebody who reads the answer would see.
        (self.home / ".curlrc").write_text("fail-with-body\n")
        for entry in ROOT.iterdir():
            if entry.name not in (".asp", ".git", "primitives", "target"):
                (self.checkout / entry.name).symlink_to(entry)
        for name, variable in (("asp", "ASP_BIN"), ("asp-runtime", "ASP_RUNTIME_BIN")):
            for folder in (self.work / "bin", self.checkout / "target/release"):
                (folder / name).symlink_to(program(variable))
        packages = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "packages"
        if packages.exists():
            (self.checkout / "target/packages").symlink_to(packages)
        for server in SERVERS:
            shutil.copytree(ROOT / "primitives" / server, self.checkout / "primitives" / server)
        shutil.copytree(HERE / "given/primitives", self.checkout / "primitives", dirs_exist_ok=True)
        if self.group.inspector:
            modules = pathlib.Path(program("ASP_CLIENTS_DIR")) / "inspector/node_modules"
            for folder in (self.checkout, self.home):
                (folder / "node_modules").symlink_to(modules)

    def start_platform(self):
        """Starts what `make run` starts, in the checkout."""
        command = "exec asp serve --dev --stack --primitives primitives"
        self.environment.pop("ASP_STATE_DIR", None)
        self.platform = Server(self, command, "ready", self.work / "platform.log")

    def run(self, document, parsed, given):
        """Runs a document's blocks in a fresh shell; yields each block with its failure, or `None`."""
        self.state.write_text(f"cd {self.checkout}\n")
        if given.exists():
            self.must(given.read_text(), is_given=True)
        for block in parsed:
            if block.excluded:
                continue
            began = time.monotonic()
            try:
                self.run_block(block)
                failure = None
            except Failed as error:
                failure = str(error)
            yield block, time.monotonic() - began, failure
        self.stop_serving()
        self.stop_given()

    def run_block(self, block):
        if block.serves:
            self.stop_serving()
            self.serving = Server(self, self.script(block.code, keeps=False), block.serves, self.work / "serving.log")
        elif block.commands:
            for command, expected in block.commands:
                printed = self.must(command)
                if not blocks.shows(expected, printed):
                    raise Failed(f"`{command}` printed something else than the document shows:\n{printed}")
        else:
            self.must(block.code)

    def script(self, code, keeps):
        """The code, in the state that the former one has left, whose own is kept."""
        keep = ('{ declare -p | grep -v "^declare -[a-zA-Z]*r"; declare -f; printf "cd %q\\n" "$PWD"; } '
                f">{self.state}.new && mv {self.state}.new {self.state}")
        head = f"source {self.state} >/dev/null 2>&1\n" + (f"trap '{keep}' EXIT\n" if keeps else "")
        return head + "set -e -o pipefail\n" + code

    def must(self, code, is_given=False):
        """Runs code and returns what it printed on standard output."""
        process = subprocess.Popen(
            ["bash", "-c", self.script(code, keeps=True)], cwd=self.checkout, env=self.environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        if is_given:
            self.given = process.pid
        try:
            output, errors = process.communicate(timeout=BLOCK)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, errors = process.communicate()
            raise Failed(f"it runs longer than {BLOCK} s:\n{output}{errors}") from None
        if process.returncode:
            raise Failed(f"it ends with {process.returncode}:\n{output}{errors}")
        return output

    def stop_serving(self):
        server, self.serving = self.serving, None
        if server:
            server.stop()

    def stop_given(self):
        group, self.given = self.given, None
        if group:
            try:
                os.killpg(group, signal.SIGTERM)
            except ProcessLookupError:
                # It started nothing that runs.
                pass

    def stop(self):
        self.stop_given()
        self.stop_serving()
        if self.platform:
            self.platform.stop()
            errors = [line for line in self.platform.log.read_text().splitlines()
                      if '"level":"ERROR"' in line or "panicked at" in line]
            if errors:
                raise Failed("errors in the platform's log:\n" + "\n".join(errors))


class Server:
    """A command that serves until it is stopped, as by Ctrl-C."""

    def __init__(self, reader, script, line, log):
        self.log = log
        with log.open("w") as output:
            self.process = subprocess.Popen(
                ["bash", "-c", script], cwd=reader.checkout, env=reader.environment, stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        pattern = re.compile("^" + re.escape(line), re.MULTILINE)
        end = time.monotonic() + START
        while not pattern.search(log.read_text()):
            if self.process.poll() is not None:
                raise Failed(f"it ends with {self.process.returncode} before `{line}`:\n{log.read_text()}")
            if time.monotonic() > end:
                self.stop()
                raise Failed(f"no `{line}` in {START} s:\n{log.read_text()}")
            time.sleep(0.05)

    def stop(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            raise Failed(f"it does not end by SIGINT:\n{self.log.read_text()[-4000:]}") from None


def program(variable):
    """Returns the path in a variable of the environment; without it nothing can be run."""
    value = os.environ.get(variable)
    if not value:
        raise SystemExit(f"documents: {variable} is not set; source .tools/env, and see tests/README.md")
    return str(pathlib.Path(value).absolute())


def run_group(name):
    group = GROUPS[name]
    parsed = documents()
    failures = ran = 0
    with tempfile.TemporaryDirectory(prefix="documents-") as work:
        reader = Reader(pathlib.Path(work), group)
        try:
            if group.platform:
                reader.start_platform()
            for document in group.documents:
                given = HERE / "given" / (pathlib.Path(document).stem.lower() + ".sh")
                for block, seconds, failure in reader.run(document, parsed[document], given):
                    ran += 1
                    print(f"{'FAILED' if failure else 'ok'} {block.place} ({seconds:.1f} s)", flush=True)
                    if failure:
                        failures += 1
                        print(f"{block.code}--\n{failure[-TAIL:]}", flush=True)
        finally:
            reader.stop()
    print(f"{ran} blocks, {failures} failed")
    return failures


def main(arguments):
    if arguments == ["--groups"]:
        print("\n".join(name for name, group in GROUPS.items() if group.end_to_end))
        return 0
    if arguments == ["--check"]:
        faults = check()
        print("\n".join(faults))
        return 1 if faults else 0
    if len(arguments) != 1 or arguments[0] not in GROUPS:
        print(f"usage: run.py --check | --groups | {' | '.join(GROUPS)}", file=sys.stderr)
        return 64
    try:
        return 1 if run_group(arguments[0]) else 0
    except Failed as error:
        print(f"documents: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
