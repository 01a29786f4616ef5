"""Skills: texts about how to do something, found by the words of a request.

Those of the folder `skills` come with the plugin. Those that a user's requests taught are in the store and lose half of their
confidence in 90 days without use. Keeps true: at most 5 skills, and at most 2,000 tokens of them, reach the model.
"""

from __future__ import annotations

import html
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import bm25
import records
import tokens

from asp_plugin import Context

KEY = "skills"
FOLDER = Path(__file__).with_name("skills")
TOP = 5
TOKENS = 2000
TEXT_TOKENS = 500
# Learned skills of one user.
LEARNED = 20
HALF_LIFE_SECONDS = 90 * 24 * 3600
# A skill with less confidence is dropped.
LEAST_CONFIDENCE = 0.2
BLOCK = "<learned_skills>\n{}\n</learned_skills>"


@dataclass(frozen=True)
class Skill:
    """One skill. Its confidence is that of the time `used_at`, in seconds since 1970; 0 for one of the plugin's own."""

    name: str
    description: str
    text: str
    confidence: float = 1.0
    used_at: float = 0.0

    def document(self) -> str:
        """Returns the text that is searched."""
        return f"{self.name} {self.description} {self.text}"

    def confidence_at(self, now: float) -> float:
        """Returns the confidence that is left; a skill of the plugin's own keeps it."""
        if not self.used_at:
            return self.confidence
        return self.confidence * 0.5 ** (max(0.0, now - self.used_at) / HALF_LIFE_SECONDS)


def bundled(folder: Path = FOLDER) -> list[Skill]:
    """Reads the skills of the folder: the name is the file's, the description its first line."""
    found = []
    for path in sorted(folder.glob("*.md")):
        title, _, text = path.read_text(encoding="utf-8").partition("\n")
        found.append(Skill(path.stem, title.lstrip("# ").strip(), text.strip()))
    return found


def find(query: str, skills: list[Skill], now: float) -> list[Skill]:
    """Returns the best skills for a request, the best first."""
    rated = zip(bm25.scores(query, [skill.document() for skill in skills]), skills, strict=True)
    fitting = [(score * skill.confidence_at(now), skill) for score, skill in rated if score > 0]
    fitting.sort(key=lambda pair: pair[0], reverse=True)
    return [skill for _, skill in fitting[:TOP]]


def block(skills: list[Skill]) -> tuple[str, list[Skill]]:
    """Returns the block for the model, and the skills in it."""
    texts = [_text(skill) for skill in skills]
    kept = tokens.first_within(texts, TOKENS - tokens.count(BLOCK))
    text = BLOCK.format("\n".join(kept)) if kept else ""
    return text, skills[: len(kept)]


async def learned(ctx: Context, now: float) -> list[Skill]:
    """Returns the user's skills."""
    return alive(await records.load(ctx, KEY), now)


async def learn(ctx: Context, skill: Skill, now: float) -> bool:
    """Adds a skill, in place of one of the same name; `False` if it could not be stored."""

    def change(found: records.Records) -> records.Records:
        others = [one for one in alive(found, now) if one.name != skill.name]
        return _stored([*others, skill], now)

    return await records.update(ctx, KEY, change)


async def mark_used(ctx: Context, names: list[str], now: float) -> None:
    """Starts the time without use of these skills again, and drops those without confidence."""

    def change(found: records.Records) -> records.Records:
        kept = alive(found, now)
        return _stored([_used(one, now) if one.name in names else one for one in kept], now)

    await records.update(ctx, KEY, change)


def alive(found: records.Records, now: float) -> list[Skill]:
    """Reads stored skills without those whose confidence is gone."""
    skills = [skill for skill in map(_read, found) if skill is not None]
    return [skill for skill in skills if skill.confidence_at(now) >= LEAST_CONFIDENCE]


def _stored(skills: list[Skill], now: float) -> records.Records:
    """Returns records, the one with the least confidence first."""
    ordered = sorted(skills, key=lambda skill: (skill.confidence_at(now), skill.used_at))
    return [asdict(skill) for skill in ordered[-LEARNED:]]


def _read(record: dict[str, Any]) -> Skill | None:
    try:
        texts = [str(record[name]) for name in ("name", "description", "text")]
        return Skill(*texts, float(record["confidence"]), float(record["used_at"]))
    except (KeyError, TypeError, ValueError):
        return None


def _used(skill: Skill, now: float) -> Skill:
    return replace(skill, used_at=now)


def _text(skill: Skill) -> str:
    return "- " + html.escape(f"{skill.name}: {skill.description}\n{skill.text}", quote=False)
