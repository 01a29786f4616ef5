"""Page of every key of specs and of server.yaml, made from the published JSON Schemas; scripts/check-docs compares it.

`python3 scripts/spec_reference.py` writes the page anew.
"""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = "docs/spec-keys.md"
HEAD = """# Keys of specs

Every key of a spec and of a `server.yaml`. `primitives/README.md` explains them with examples; `primitives/schema` has the JSON
Schemas, from which `python3 scripts/spec_reference.py` makes this page.
"""
FILES = (("A spec", "primitive.json"), ("`server.yaml`", "server.json"))


def form(schema, definitions, link):
    """Text for the values that a schema takes."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return link.format(name, name.lower()) if definitions[name].get("properties") else form(definitions[name], definitions, link)
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(form(each, definitions, link) for each in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {form(schema.get('items', {}), definitions, link)}"
    if schema.get("type") == "object":
        inner = schema.get("additionalProperties")
        return f"map of {form(inner, definitions, link)}" if isinstance(inner, dict) else "map"
    bounds = [f"{word} {schema[key]}" for key, word in (("minimum", "from"), ("maximum", "to")) if key in schema]
    return " ".join([schema.get("type", "any value"), *bounds])


def table(schema, definitions, link):
    """Rows of the keys of one object."""
    rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for key, value in schema["properties"].items():
        # Any value (JSON Schema 2020-12, section 4.3.2).
        value = {} if value is True else value
        needed = "required" if key in schema.get("required", []) else ""
        default = f"`{json.dumps(value['default'])}`" if value.get("default") not in (None, [], {}) else needed
        target = definitions.get(value.get("$ref", "").rpartition("/")[2], {})
        meaning = " ".join((value.get("description") or target.get("description") or "").split())
        cells = (f"`{key}`", form(value, definitions, link), default, meaning)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def page():
    """Text of the page."""
    parts = [HEAD]
    for title, file in FILES:
        schema = json.loads((ROOT / "primitives/schema" / file).read_text(encoding="utf-8"))
        definitions = schema.get("$defs", {})
        prefix = file.partition(".")[0]
        link = f"[{{0}}](#{prefix}-{{1}})"
        parts.append(f"\n## {title}\n\n{table(schema, definitions, link)}\n")
        for name, definition in sorted(definitions.items()):
            if definition.get("properties"):
                parts.append(f"\n### {prefix} {name}\n\n{table(definition, definitions, link)}\n")
    return "".join(parts)


if __name__ == "__main__":
    (ROOT / PAGE).write_text(page(), encoding="utf-8")
