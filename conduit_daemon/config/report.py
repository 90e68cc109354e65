"""What is found wrong with one configuration, collected so that all of it can be told at once."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from conduit_daemon.errors import ConfigError, ConfigProblem

__all__ = ["KeyPath", "Report", "dotted", "nearest"]

KeyPath = tuple[str | int, ...]
"""Where something stands: table keys, and indices of lists."""

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_LONGEST_KEY: Final = 100


def dotted(path: KeyPath) -> str:
    """The path as one would write it: ``servers.files.args[0]``, parts quoted where TOML wants it."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        shown = part if len(part) <= _LONGEST_KEY else part[:_LONGEST_KEY] + "…"
        if not _BARE.fullmatch(shown):
            shown = ascii(shown)
        text += f".{shown}" if text else shown
    return text


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` most likely is a slip of, if one is near."""
    candidates = list(known)
    folded = {candidate.lower(): candidate for candidate in reversed(candidates)}
    slip = word.lower().replace("-", "_")
    if slip in folded:
        return folded[slip]
    matches = difflib.get_close_matches(slip, list(folded), n=1, cutoff=0.6)
    return folded[matches[0]] if matches else None


class Report:
    """Collects the problems and warnings of one file.

    Attributes:
        file: The file's name, as problems name it.
        problems: What makes the configuration unusable, in the order found.
        warnings: What is probably not what was meant, one sentence each.
        renamed: Paths that stand elsewhere in the file than in the model, by the model's
            (a server of another host's JSON file).
        sources: A digest of each file that was read, None of one that could not be.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[ConfigProblem] = []
        self.warnings: list[str] = []
        self.renamed: dict[KeyPath, KeyPath] = {}
        self.sources: dict[Path, str | None] = {}

    def problem(self, path: KeyPath, message: str, suggestion: str | None = None) -> None:
        """Notes a mistake at `path`; `message` never holds a value, which may be a secret."""
        self.problems.append(
            ConfigProblem(file=self.file, key=dotted(self._in_file(path)), message=message, suggestion=suggestion)
        )

    def warning(self, path: KeyPath, message: str) -> None:
        """Notes something that is legal and probably not meant."""
        key = dotted(self._in_file(path))
        self.warnings.append(f"{self.file}: {key}: {message}" if key else f"{self.file}: {message}")

    def finish(self) -> None:
        """Raises what was collected.

        Raises:
            ConfigError: There are problems.
        """
        if self.problems:
            raise ConfigError(tuple(self.problems), self.sources)

    def _in_file(self, path: KeyPath) -> KeyPath:
        for length in range(len(path), 0, -1):
            original = self.renamed.get(path[:length])
            if original is not None:
                return original + path[length:]
        return path
