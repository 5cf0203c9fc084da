"""Writing files so that a kill at any moment leaves either the old file or the new one.

A write is temp + fsync + rename. A folder is trusted only through its manifest, which holds the
sha256 of each of its files and is written last.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from pathlib import Path

from headrace.errors import Unavailable

MANIFEST = "manifest.json"


def write_atomically(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Create or replace `path` with `content`, durable when this returns; `mode` is subject to the umask."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames inside `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal_folder(staging: Path, final: Path, facts: dict[str, object]) -> dict[str, str]:
    """Turn a folder of finished files into a trusted one: sync, manifest, rename.

    `facts` go into the manifest beside the hashes. An existing `final` without a valid manifest is
    replaced. Returns the sha256 of each file by relative path.
    """
    hashes = {}
    for path in sorted(staging.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
            hashes[str(path.relative_to(staging))] = sha256_of(path)
        elif path.is_dir():
            sync_folder(path)
    write_atomically(staging / MANIFEST, json.dumps({**facts, "files": hashes}, indent=1).encode())
    final.parent.mkdir(parents=True, exist_ok=True)
    if final.exists():
        shutil.rmtree(final)
    staging.replace(final)
    sync_folder(final.parent)
    return hashes


def read_manifest(folder: Path, *, verify: bool = True) -> dict[str, object] | None:
    """The manifest of a trusted folder; None when it is absent or a file does not match its hash."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError):
        return None
    for name, digest in manifest["files"].items():
        path = folder / name
        if not path.is_file() or (verify and sha256_of(path) != digest):
            return None
    return manifest


class ArtifactStore:
    """Whole files under one root, addressed by relative path."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, relative: str) -> Path:
        """Absolute path of an artifact; refuses to leave the root."""
        path = (self.root / relative).resolve()
        if not path.is_relative_to(self.root.resolve()):
            raise ValueError(f"artifact path {relative!r} leaves the artifact root")
        return path

    def write(self, relative: str, content: bytes) -> str:
        """Write durably; returns the sha256."""
        write_atomically(self.path(relative), content)
        return hashlib.sha256(content).hexdigest()

    def read(self, relative: str, sha256: str | None = None) -> bytes:
        """Read whole; with `sha256` given, content that differs raises Unavailable."""
        content = self.path(relative).read_bytes()
        if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
            raise Unavailable(f"artifact {relative} does not match its sha256; it was changed or truncated")
        return content
