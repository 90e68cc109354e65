"""References in a configuration's texts: ``${env:NAME}``, ``${file:PATH}``, ``${credential:NAME}``.

``${env:NAME:-default}`` takes the default where the variable is unset or empty, as a shell does. ``$${`` is a
literal ``${``. Anything else in ``${...}`` is a mistake, since a text that silently stays as it is would reach
a server in place of its secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from conduit_daemon.config.places import home
from conduit_daemon.config.report import KeyPath, Report
from conduit_daemon.config.sources import digest

__all__ = ["Expander", "speaks_of_secret"]

_REFERENCE: Final = re.compile(r"\$(\$)?\{([^{}]*)\}?")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CREDENTIAL: Final = re.compile(r"[A-Za-z0-9_.@-]+")
_SECRET_WORDS: Final = re.compile(r"token|key|secret|passw|passphrase|auth|credential|cookie", re.IGNORECASE)
_SHORTEST_SECRET: Final = 8
_SHORTEST_SECRET_LINE: Final = 16
_LARGEST_FILE: Final = 1024 * 1024


def speaks_of_secret(name: str) -> bool:
    """Whether a variable, key or header of this name is taken to hold a secret.

    Example:
        >>> speaks_of_secret("GITHUB_TOKEN"), speaks_of_secret("LANG")
        (True, False)
    """
    return _SECRET_WORDS.search(name) is not None


class Expander:
    """Resolves the references of one configuration and remembers which of the values are secret.

    Attributes:
        secrets: Values that must be masked wherever people look, each at least 8 characters long.
    """

    def __init__(self, environ: Mapping[str, str], base: Path, report: Report) -> None:
        self._environ = environ
        self._base = base
        self._report = report
        self._files: dict[Path, str | None] = {}
        self.secrets: set[str] = set()

    def expand(self, text: str, path: KeyPath) -> str | None:
        """`text` with its references resolved; None where one cannot be, which then is a problem."""
        if "${" not in text:
            return text
        parts: list[str] = []
        position = 0
        complete = True
        for match in _REFERENCE.finditer(text):
            parts.append(text[position : match.start()])
            position = match.end()
            if match[1]:
                parts.append(match[0][1:])
                continue
            value = self._resolve(match[2], path) if match[0].endswith("}") else self._refuse(path, "is never closed")
            complete = complete and value is not None
            parts.append(value or "")
        parts.append(text[position:])
        return "".join(parts) if complete else None

    def mask(self, value: str) -> None:
        """Has `value` masked from now on, as a whole and, since logs come in lines, line by line."""
        whole = value.strip()
        if len(whole) >= _SHORTEST_SECRET:
            self.secrets.add(whole)
        lines = whole.splitlines()
        if len(lines) > 1:
            self.secrets.update(
                line.strip() for line in lines if len(line.strip()) >= _SHORTEST_SECRET_LINE and "-----" not in line
            )

    def absolute(self, text: str) -> Path:
        """The path that `text` means: relative to the file; ``~`` is the home directory, ``file://`` no part of it."""
        if text == "~" or text.startswith("~/"):
            return home(self._environ) / text[2:]
        return self._base / text.removeprefix("file://")

    def _resolve(self, reference: str, path: KeyPath) -> str | None:
        kind, colon, name = reference.partition(":")
        if colon and kind == "env":
            return self._variable(name, path)
        if colon and kind == "file":
            return (
                self._file(self.absolute(name), f"the file {name}", path)
                if name
                else self._refuse(path, "names no file")
            )
        if colon and kind == "credential":
            return self._credential(name, path)
        return self._refuse(path, "is none that is known")

    def _refuse(self, path: KeyPath, what: str) -> str | None:
        self._report.problem(
            path,
            f"a reference ${{...}} in it {what}; expected ${{env:NAME}}, ${{env:NAME:-default}}, ${{file:PATH}} or "
            "${credential:NAME} ($${ stands for the characters ${ themselves)",
        )
        return None

    def _variable(self, text: str, path: KeyPath) -> str | None:
        name, has_default, default = text.partition(":-")
        if not _VARIABLE.fullmatch(name):
            return self._refuse(path, "has a variable's name with characters that none can have")
        value = self._environ.get(name)
        if not value and has_default:
            value = default
        if value is None:
            self._report.problem(
                path, f"the environment variable {name} is not set; set it, or write ${{env:{name}:-default}}"
            )
            return None
        if speaks_of_secret(name) or any(isinstance(part, str) and speaks_of_secret(part) for part in path[-1:]):
            self.mask(value)
        return value

    def _credential(self, name: str, path: KeyPath) -> str | None:
        if not _CREDENTIAL.fullmatch(name) or name in {".", ".."}:
            return self._refuse(path, "has a credential's name with characters that none can have")
        directory = self._environ.get("CREDENTIALS_DIRECTORY")
        if not directory:
            self._report.problem(
                path,
                f"the credential {name} cannot be read: $CREDENTIALS_DIRECTORY is not set "
                "(systemd sets it for units with LoadCredential=)",
            )
            return None
        return self._file(Path(directory) / name, f"the credential {name}", path)

    def _file(self, file: Path, what: str, path: KeyPath) -> str | None:
        if file in self._files:
            value = self._files[file]
            if value is None:
                self._report.problem(path, f"{what} cannot be read, as said above")
            return value
        value = None
        self._report.sources[file] = None
        try:
            if not file.is_file():
                self._report.problem(path, f"{what} does not exist, or is no regular file")
            elif file.stat().st_size > _LARGEST_FILE:
                self._report.problem(path, f"{what} is larger than 1 MiB")
            else:
                data = file.read_bytes()
                self._report.sources[file] = digest(data)
                value = data.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            self._report.problem(path, f"{what} is not UTF-8 text")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else "the path is impossible"
            self._report.problem(path, f"{what} cannot be read: {reason}")
        if value is not None:
            self.mask(value)
        self._files[file] = value
        return value
