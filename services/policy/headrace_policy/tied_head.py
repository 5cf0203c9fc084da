"""Weights as the engine's in-place reload needs them: with an explicit output head.

A checkpoint whose head is tied to its embeddings holds the matrix once. At start the engine ties
them itself, but its reload leaves the old head in place (on CPU it keeps a packed copy), so that the
served model is half old and half new. The reload therefore reads a folder of links to the
checkpoint's files plus one file with the head. Works on the file format alone, without torch.
"""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

BLOCK = 1 << 20
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


@dataclass(frozen=True)
class _Tensor:
    """Where one tensor lies: file, dtype, shape, and its bytes [start, end) in the file."""

    file: Path
    dtype: str
    shape: list[int]
    start: int
    end: int


@contextmanager
def reloadable(folder: Path, scratch: Path) -> Iterator[Path]:
    """A folder to reload from: `folder` itself when it has a head, else a temporary one in `scratch`."""
    tensors = _tensors(folder)
    embedding = next((name for name in tensors if name.endswith(EMBEDDING)), None)
    if embedding is None or any(name.endswith(HEAD) for name in tensors):
        yield folder
        return
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="reload-", dir=scratch) as name:
        staged = Path(name)
        for file in folder.iterdir():
            # Without an index the engine reads every file, the added one too.
            if file.is_file() and not file.name.endswith(".index.json"):
                (staged / file.name).symlink_to(file.resolve())
        head = embedding.removesuffix(EMBEDDING) + HEAD
        _write_one(staged / "tied-head.safetensors", head, tensors[embedding])
        yield staged


def _tensors(folder: Path) -> dict[str, _Tensor]:
    found = {}
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as opened:
            header, base = _header(opened, file.stat().st_size)
        for name, entry in header.items():
            if name != "__metadata__":
                start, end = entry["data_offsets"]
                found[name] = _Tensor(file, entry["dtype"], entry["shape"], base + start, base + end)
    return found


def _header(file: BinaryIO, size: int) -> tuple[dict[str, Any], int]:
    """The header's JSON, and where the data begin: after its 8-byte length and itself."""
    (length,) = struct.unpack("<Q", file.read(8))
    if 8 + length > size:
        raise ValueError(f"{file.name} is no safetensors file, or was cut short")
    return json.loads(file.read(length)), 8 + length


def _write_one(target: Path, name: str, tensor: _Tensor) -> None:
    size = tensor.end - tensor.start
    entry = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [0, size]}
    header = json.dumps({"__metadata__": {"format": "pt"}, name: entry}).encode()
    header += b" " * (-len(header) % 8)
    with tensor.file.open("rb") as source, target.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        source.seek(tensor.start)
        _copy(source, file, size)


def _copy(source: BinaryIO, target: BinaryIO, size: int) -> None:
    while size:
        block = source.read(min(size, BLOCK))
        if not block:
            raise EOFError("the weights file ends before its tensor")
        target.write(block)
        size -= len(block)
