"""`conduit config schema`: the configuration's JSON Schema, for editors."""

from __future__ import annotations

from conduit_daemon.cli import output
from conduit_daemon.cli.exits import DONE

__all__ = ["schema"]


def schema(*, json: bool = False) -> int:
    """Prints the JSON Schema of the configuration, with which editors complete keys and mark mistakes.

    Save it beside the configuration and begin that with the line "#:schema ./conduit.schema.json".

    Args:
        json: Print JSON, as it does in any case.
    """
    from conduit_daemon.config.schema import json_schema  # noqa: PLC0415 - loaded by those alone who need it

    output.print_json(json_schema())
    return DONE
