"""The installed packages against the bounds of this release."""

import platform
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement
from peltier_client.commands.doctor import Finding

_SUBJECT = "packages"
_DISTRIBUTION = "peltier"
# What one installs to work on Peltier itself.
_FOR_DEVELOPERS = "dev"


def check_packages() -> Iterator[Finding]:
    """One finding for each package that is too old or too new, and the extras that are complete."""
    missing: dict[str, list[str]] = defaultdict(list)
    for extra, requirement in _requirements():
        missing.setdefault(extra, [])
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            missing[extra].append(requirement.name)
            continue
        if not requirement.specifier.contains(found, prereleases=True):
            needed = f"{requirement.name}{requirement.specifier}"
            text = f"{requirement.name} {found} is installed, and this release needs {needed}"
            yield Finding(subject=_SUBJECT, level="broken", text=text, next_step=f'pip install "{needed}"')
    if missing[""]:
        text = f"required packages are missing: {', '.join(missing[''])}"
        yield Finding(subject=_SUBJECT, level="broken", text=text, next_step="pip install peltier")
    complete = sorted(extra for extra, names in missing.items() if extra and not names)
    text = f"peltier {version(_DISTRIBUTION)} on Python {platform.python_version()}, extras: {', '.join(complete)}"
    yield Finding(subject=_SUBJECT, level="ok", text=f"{text} ({sys.prefix})")
    for extra in sorted(extra for extra, names in missing.items() if extra and names):
        text = f"the extra {extra} is not installed: it also needs {', '.join(sorted(missing[extra]))}"
        step = f'to use it: pip install "peltier[{extra}]"'
        yield Finding(subject=_SUBJECT, level="note", text=text, next_step=step)


def _requirements() -> Iterator[tuple[str, Requirement]]:
    """Each requirement on this platform with the extra that brings it, "" for those of every installation."""
    parsed = [Requirement(line) for line in requires(_DISTRIBUTION) or ()]
    extras = {extra for one in parsed for extra in _extras_of(one)}
    for one in parsed:
        if one.name == _DISTRIBUTION:
            continue
        for extra in sorted({"", *extras} - {_FOR_DEVELOPERS}):
            if _is_needed(one, extra):
                yield extra, one
                break


def _extras_of(requirement: Requirement) -> Iterator[str]:
    for word in str(requirement.marker or "").split("extra == ")[1:]:
        yield word.split("'" if word.startswith("'") else '"')[1]


def _is_needed(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})
