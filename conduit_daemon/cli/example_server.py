"""A small but real MCP server over stdio: a notebook in memory, for `conduit demo` and for trying things out.

    python -m conduit_daemon.cli.example_server

It shows what servers do: structured output, plain text, an image, an error that helps the model, progress.
"""

from __future__ import annotations

import struct
import zlib
from typing import Annotated

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import BaseModel, Field

__all__ = ["Match", "Matches", "Note", "main", "server"]

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)


class Note(BaseModel):
    """A note."""

    id: str
    title: str
    body: str
    tags: list[str] = []


class Match(BaseModel):
    """A note that a search has found."""

    id: str
    title: str
    line: str = Field(description="The first line of the note that holds the words")


class Matches(BaseModel):
    """What a search has found, best first."""

    matches: list[Match]
    total: int


def server() -> MCPServer:
    """The server, with a notebook of its own."""
    made = MCPServer("notebook", instructions="A notebook. Search before you read.", log_level="WARNING")
    notes = {note.id: note for note in _FIRST_NOTES}

    @made.tool(annotations=READS)
    def search_notes(
        words: Annotated[str, Field(min_length=1, description="Words that the note must hold, in any order")],
        limit: Annotated[int, Field(ge=1, le=50, description="How many notes at most")] = 5,
    ) -> Matches:
        """Search the notes for words, in titles, bodies and tags."""
        wanted = words.lower().split()
        found = [note for note in notes.values() if all(word in _text(note).lower() for word in wanted)]
        lines = [Match(id=note.id, title=note.title, line=_line(note, wanted)) for note in found[:limit]]
        return Matches(matches=lines, total=len(found))

    @made.tool(annotations=READS, structured_output=False)
    def read_note(id: Annotated[str, Field(description="The note's id, as search_notes gives it")]) -> str:
        """Read one note in full."""
        if id not in notes:
            raise ToolError(f"There is no note {id!r}. The ids are: {', '.join(notes)}.")
        note = notes[id]
        return f"# {note.title}\n\n{note.body}\n\nTags: {', '.join(note.tags) or 'none'}"

    @made.tool(annotations=ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False))
    def add_note(title: str, body: str, tags: list[str] | None = None) -> Note:
        """Add a note and return it with its id. It is kept until the server stops."""
        note = Note(id=f"n{len(notes) + 1}", title=title, body=body, tags=tags or [])
        notes[note.id] = note
        return note

    @made.tool(annotations=READS)
    def chart_tags() -> Image:
        """Draw a bar chart of how many notes each tag has, in the order of the alphabet."""
        tags = sorted({tag for note in notes.values() for tag in note.tags})
        counts = [sum(tag in note.tags for note in notes.values()) for tag in tags]
        return Image(data=_bars(counts), format="png")

    @made.tool(annotations=READS, structured_output=False)
    async def proofread(context: Context, seconds_per_note: Annotated[float, Field(ge=0, le=10)] = 0.2) -> str:
        """Read all notes slowly and report progress: a call that takes its time."""
        for done, note in enumerate(list(notes.values())):
            await context.report_progress(done, len(notes), note.title)
            await anyio.sleep(seconds_per_note)
        return f"{len(notes)} notes read; nothing to correct."

    return made


def main() -> None:
    """Serves over stdin and stdout until stdin ends."""
    server().run("stdio")


_FIRST_NOTES = (
    Note(
        id="n1",
        title="Bread",
        body="500 g flour, 350 g water, 10 g salt, 3 g yeast.\nFold four times, bake at 240 degrees for 40 minutes.",
        tags=["kitchen", "recipe"],
    ),
    Note(
        id="n2", title="Bicycle", body="Tyres: 4.5 bar in front, 5 bar behind.\nChain renewed in May.", tags=["garage"]
    ),
    Note(
        id="n3",
        title="Winter jam",
        body="Quinces and ginger, two to one.\nAs much sugar as fruit; boil for 4 minutes.",
        tags=["kitchen", "recipe", "winter"],
    ),
)


def _text(note: Note) -> str:
    return "\n".join((note.title, note.body, *note.tags))


def _line(note: Note, words: list[str]) -> str:
    return next((line for line in _text(note).splitlines() if any(word in line.lower() for word in words)), note.title)


def _bars(counts: list[int], bar: int = 40, gap: int = 8, unit: int = 30) -> bytes:
    """A PNG of dark bars on white (PNG specification, third edition: IHDR, IDAT, IEND; 8-bit greyscale)."""
    height = max(counts, default=1) * unit + gap
    rows = bytearray()
    for y in range(height, 0, -1):
        rows.append(0)  # the row's filter: none
        for count in counts:
            rows += b"\xff" * gap + (b"\x30" if y <= count * unit else b"\xff") * bar
        rows += b"\xff" * gap
    width = len(counts) * (bar + gap) + gap
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(rows))), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


if __name__ == "__main__":
    main()
