"""An SFT job's datasets: checked line by line before anything is sent, uploaded once, waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path

from headrace.client import ApiClient
from headrace.contracts.dataset import check_chat_jsonl
from headrace.errors import ConfigError, DataError
from headrace_cli.errors import TimedOut
from headrace_cli.session import Json, Session

READY = ("ready", "uploaded", "stored", "complete")
WAITING = ("processing", "pending", "validating")
LOOK_S = 2.0
"""Seconds between two looks at a file that is not ready."""


@dataclass(frozen=True)
class Dataset:
    """A checked file, as it will be sent."""

    path: Path
    """What the user named."""
    sent: Path
    """What is sent: the same, or a copy of its first conversations."""
    n_rows: int
    n_bytes: int
    sha256: str

    @property
    def size(self) -> str:
        n = f"{self.n_rows} conversation{'' if self.n_rows == 1 else 's'}"
        return f"{n}, {readable(self.n_bytes)}"


def checked(path: Path, folder: Path, n_first: int | None = None) -> Dataset:
    """Check every line that will be sent; raises DataError that names the first twenty bad ones.

    With `n_first` only so many conversations are sent: they are copied into `folder`.
    """
    if not path.is_file():
        raise ConfigError(
            f"dataset {path} does not exist (looked for in {Path.cwd()}); correct the path or give --dataset"
        )
    sent = path if n_first is None else _first(path, n_first, folder)
    with sent.open("rb") as file:
        n_rows = check_chat_jsonl(file, str(path))
        file.seek(0)
        digest = file_digest(file, "sha256").hexdigest()
    return Dataset(path, sent, n_rows, sent.stat().st_size, digest)


def stored(api: ApiClient, dataset: Dataset, session: Session) -> str:
    """The id of the dataset at the API, once it is ready; bytes that are there already are not sent again."""
    kept = _kept(api, dataset.sha256)
    if kept is not None:
        session.say(f"Using file {kept['id']} at the API, which has the same content as {dataset.path}")
        _wait(api, kept["id"], kept, session)
        return kept["id"]
    session.say(f"Uploading {dataset.path} ({dataset.size})")
    with _progress(dataset, session) as on_read:
        answer = api.upload_file(dataset.sent, on_read=on_read)
    file_id = str(answer["id"])
    session.say(f"Uploaded as {file_id}")
    _wait(api, file_id, answer, session)
    return file_id


def readable(n_bytes: float) -> str:
    """
    >>> readable(512), readable(1536), readable(5 << 20)
    ('512 B', '1.5 KiB', '5.0 MiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n_bytes < 1024 or unit == "GiB":
            return f"{n_bytes:.0f} B" if unit == "B" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1024
    raise AssertionError


def _first(path: Path, n_first: int, folder: Path) -> Path:
    """A copy of the lines up to the `n_first`-th conversation; blank ones stay, so that numbers hold."""
    copy, n = folder / f"{path.stem}.first-{n_first}{path.suffix}", 0
    with path.open("rb") as lines, copy.open("wb") as out:
        for line in lines:
            out.write(line)
            n += bool(line.strip())
            if n == n_first:
                break
    return copy


def _kept(api: ApiClient, sha256: str) -> Json | None:
    """A file of the same bytes, uploaded before."""
    after = None
    while True:
        page = api.files_page(after=after, limit=1000)
        for row in page["files"]:
            if row.get("sha256") == sha256 and _state(row) in (*READY, *WAITING):
                return row
        if not page.get("has_more"):
            return None
        after = page["files"][-1]["id"]


def _wait(api: ApiClient, file_id: str, answer: Json, session: Session) -> None:
    timeout, began, said = session.options.poll_timeout, time.monotonic(), ""
    while (state := _state(answer)) in WAITING:
        if state != said:
            session.say(f"Waiting for {file_id}: {state}")
            said = state
        if time.monotonic() - began >= timeout:
            raise TimedOut(
                f"file {file_id} is still {state} after {timeout:g} s; the same command takes it up again"
            )
        time.sleep(min(LOOK_S, session.options.poll_interval))
        answer = api.get_file(file_id)
    if state not in READY:
        raise DataError(
            f"file {file_id} is {state} at the API: {answer.get('error') or 'no reason was given'}"
        )
    session.say(f"File {file_id} is ready")


def _state(row: Json) -> str:
    return str(row.get("status") or row.get("state") or row.get("storage_state") or "ready").lower()


@contextmanager
def _progress(dataset: Dataset, session: Session) -> Iterator[Callable[[int], object] | None]:
    """A bar that follows the upload on a terminal, nothing elsewhere."""
    if not session.can_ask:
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    with Progress(BarColumn(), DownloadColumn(), TransferSpeedColumn(), transient=True) as bar:
        task = bar.add_task("upload", total=dataset.n_bytes)
        yield lambda n: bar.advance(task, n)
