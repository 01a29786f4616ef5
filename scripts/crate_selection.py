"""The unit tests of one crate, as arguments of cargo that compile what `make test` compiles.

Cargo chooses the features of shared dependencies by all packages of a build, so that `cargo test -p CRATE` would compile most of
them a second time. The selection here is the workspace without the crates that depend on CRATE, with the features that those
ask of the others: of all this only CRATE is compiled after a change of it.
"""

import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def workspace():
    """Returns the packages of the workspace by name."""
    command = ["cargo", "metadata", "--locked", "--no-deps", "--format-version", "1"]
    metadata = json.loads(subprocess.check_output(command, cwd=ROOT))
    return {package["name"]: package for package in metadata["packages"]}


def own_dependencies(package):
    return [dependency for dependency in package["dependencies"] if dependency.get("path")]


def dependents(packages, crate):
    """Returns the names of the packages that depend on the crate, however far.

    >>> def package(*names): return {"dependencies": [{"name": name, "path": "/"} for name in names]}
    >>> packages = {"a": package(), "b": package("a"), "c": package("b"), "d": package()}
    >>> sorted(dependents(packages, "a"))
    ['b', 'c']
    """
    found = {crate}
    size = 0
    while size < len(found):
        size = len(found)
        found |= {
            name
            for name, package in packages.items()
            if any(dependency["name"] in found for dependency in own_dependencies(package))
        }
    return found - {crate}


def selection(packages, crate):
    """Returns the arguments of cargo that select the crate's unit tests with the features of the whole workspace.

    >>> wants = {"name": "a", "path": "/", "features": ["x"]}
    >>> packages = {"a": {"dependencies": [], "targets": [{"kind": ["lib"], "test": True}]}, "b": {"dependencies": [wants]}}
    >>> selection(packages, "a")
    ['--workspace', '--exclude', 'b', '--features', 'a/x', '--lib']
    """
    excluded = dependents(packages, crate)
    arguments = ["--workspace"]
    features = set()
    for name in sorted(excluded):
        arguments += ["--exclude", name]
        for dependency in own_dependencies(packages[name]):
            if dependency["name"] not in excluded:
                features |= {f"{dependency['name']}/{feature}" for feature in dependency["features"]}
    if features:
        arguments += ["--features", ",".join(sorted(features))]
    kinds = {kind for target in packages[crate]["targets"] if target["test"] for kind in target["kind"]}
    arguments += ["--lib"] if kinds & {"lib", "rlib", "cdylib"} else []
    arguments += ["--bins"] if "bin" in kinds else []
    return arguments
