"""Every error that a person may see, with the sentence they read and the HTTP status it maps to.

    HeadraceError
    ├── ConfigError         422  a config key is wrong, missing or contradicts another
    ├── BadRequest          400  a request cannot be understood
    ├── Unauthorized        401  no key, or one that is not known
    ├── Forbidden           403  a key that is known but may not do this
    ├── NotFound            404
    ├── Conflict            409  the state does not allow it (illegal status move, reused idempotency key)
    ├── StaleTimeline       409  an owner that was replaced tried to act
    ├── Gone                410  the session has ended
    ├── DataError           422  a line of a dataset is wrong (names the line)
    ├── Unavailable         503  a dependency does not answer
    └── JobFailed           500  a running job cannot go on; the message becomes the job's reason

A message is one sentence that names the key, the value and the fix. Subclass when a caller
must tell the case apart; otherwise raise the nearest one here.
"""

from __future__ import annotations


class HeadraceError(Exception):
    """Base class; `str(error)` is the sentence shown, `status` the HTTP status."""

    status = 500
    code = "internal_error"

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def __reduce__(self):  # keeps the details through pickling (Celery, multiprocessing)
        return (_rebuild, (type(self), self.message, self.details))


def _rebuild(cls: type[HeadraceError], message: str, details: dict[str, object]) -> HeadraceError:
    return cls(message, **details)


class ConfigError(HeadraceError):
    """A config key is wrong; `details["problems"]` lists every problem found."""

    status = 422
    code = "invalid_config"


class BadRequest(HeadraceError):
    status = 400
    code = "bad_request"


class Unauthorized(HeadraceError):
    status = 401
    code = "unauthorized"


class Forbidden(HeadraceError):
    status = 403
    code = "forbidden"


class NotFound(HeadraceError):
    status = 404
    code = "not_found"


class Conflict(HeadraceError):
    status = 409
    code = "conflict"


class StaleTimeline(Conflict):
    code = "stale_timeline"


class Gone(HeadraceError):
    status = 410
    code = "gone"


class DataError(HeadraceError):
    status = 422
    code = "invalid_data"


class Unavailable(HeadraceError):
    status = 503
    code = "unavailable"


class JobFailed(HeadraceError):
    code = "job_failed"
