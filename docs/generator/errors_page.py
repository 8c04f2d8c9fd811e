"""reference/errors.md: every error code."""

from peltier_client.errors import PeltierError, error_classes
from peltier_server.protocols.openai.errors import OPENAI_ERRORS

from docs.generator.table import table

_HEAD = """# Errors

Every error has this body:

```json
{"error": {"code": "adapter_not_found", "message": "task 'sst3' is unknown", "details": []}}
```

`code` is stable; write programs against it. `message` is one sentence for people. `details` lists all reasons if there
are several. On the routes of OpenAI's protocol the body has OpenAI's format, and 422 becomes 400. The Python client
raises the class in the table; each is a subclass of `PeltierError`, or of the class in brackets. 429, 503 and 507 carry
`Retry-After` in seconds. The client repeats a request after 429, 503 and a failed connection.

"""


def errors_page() -> str:
    """The page; errors with status 0 occur only in a client."""
    rows = [_row(error) for error in sorted(error_classes(), key=lambda error: (error.status or 999, error.code))]
    return _HEAD + table(("status", "OpenAI", "code", "Python class", "meaning"), rows) + "\n"


def _row(error: type[PeltierError]) -> tuple[str, ...]:
    parent = error.__bases__[0]
    inherited = "" if parent is PeltierError else f" ({parent.__name__})"
    meaning = (error.__doc__ or "").strip()
    if not error.status:
        return "none", "", f"`{error.code}`", f"`{error.__name__}`{inherited}", meaning
    return (
        str(error.status),
        str(OPENAI_ERRORS.status(error)),
        f"`{error.code}`",
        f"`{error.__name__}`{inherited}",
        meaning,
    )
