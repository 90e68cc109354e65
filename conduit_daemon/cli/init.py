"""`conduit init`: a first configuration, with an explanation in every line."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

from conduit_daemon.cli import output
from conduit_daemon.cli.exits import DONE, FAILED

__all__ = ["init"]


def init(file: Path | None = None, *, json: bool = False) -> int:
    """Writes a configuration to begin with, all of it explained; never over one that exists.

    Args:
        file: Where to; without, to the first place at which the daemon looks.
        json: Print what was done as JSON.
    """
    from conduit_daemon.config import config_candidates  # noqa: PLC0415 - loaded by those alone who need it

    places = config_candidates(os.environ)
    if named := os.environ.get("CONDUIT_CONFIG"):
        places = [Path(named)]
    path = (file or places[0]).expanduser().absolute()
    if path.is_dir():
        path /= "conduit.toml"
    text = (files(__package__) / "templates" / "conduit.toml").read_text("utf-8")
    if not _written(path, text):
        output.print_error(f"{path} exists and is left as it is. See what is in it with: conduit check {path}")
        return FAILED
    shadowed = next((place for place in places[1:] if path == places[0] and place.is_file()), None)
    importable = _importable()
    if json:
        output.print_json({"written": str(path), "instead_of": shadowed and str(shadowed), "importable": importable})
        return DONE
    output.print_text(f"Written: {path}")
    if shadowed is not None:
        output.print_text(f"The daemon takes it from now on, and not {shadowed}.")
    found_at = path in places
    output.print_text("\nNext:")
    if importable:
        hosts = ", ".join(f"{host} ({', '.join(servers)})" for host, servers in importable.items())
        output.print_text(f"  conduit import --into {path}    # the servers of {hosts}")
    else:
        output.print_text("  put your servers in it")
    output.print_text(f"  conduit check{'' if found_at else f' {path}'}")
    output.print_text(f"  conduit run{'' if found_at else f' --config {path}'}")
    return DONE


def _written(path: Path, text: str) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # secrets may be written into it
    except FileExistsError:
        return False
    with open(number, "w", encoding="utf-8") as file:
        file.write(text)
    return True


def _importable() -> dict[str, list[str]]:
    """The servers that `conduit import` would find, by their hosts' names."""
    from conduit_daemon.cli.hosts import known_places  # noqa: PLC0415
    from conduit_daemon.cli.imported import gather  # noqa: PLC0415

    folder = Path.cwd()
    found, _ = gather(known_places(os.environ, folder), folder, os.environ, strict=False)
    hosts: dict[str, list[str]] = {}
    for source in found.sources:
        if source.servers:
            hosts.setdefault(source.host, []).extend(source.servers)
    return hosts
