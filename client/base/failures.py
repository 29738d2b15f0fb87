"""One line about an application's function that raised: the error, and where in its code.

The whole traceback goes to the log at DEBUG. An error of the library itself is no matter of this
module: its traceback is always logged.
"""

import logging
import site
import sysconfig
from pathlib import Path
from types import TracebackType

TEXT_MAX = 500  # characters of the error's text
# Frames of these packages are the client's own, not the application's.
OURS = tuple(f"{__package__.partition('.')[0]}.{part}" for part in ("client", "protocol"))
_STANDARD = Path(sysconfig.get_path("stdlib"))
_PACKAGES = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages())
_INSTALLED = tuple(
    {
        Path(folder)
        for folder in (*_PACKAGES, site.getusersitepackages())
        if folder.endswith("-packages")
    }
)


def log_failure(log: logging.Logger, error: BaseException, what: str, *arguments: object) -> None:
    """Log at WARNING that `what`, with its `arguments`, failed with this error."""
    found = place(error.__traceback__)
    text = " ".join(str(error).split())
    if len(text) > TEXT_MAX:
        text = f"{text[:TEXT_MAX]}…"
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    log.warning(f"{what}: %s%s", *arguments, said, f" (at {found})" if found else "")
    log.debug("the traceback of that:", exc_info=error)


def place(trace: TracebackType | None) -> str:
    """The line of the application's code that failed, as "file:line in function"; "" if in none.

    It is the innermost frame of the code that was called, without the packages that this code uses.
    """
    frames = []
    while trace is not None:
        code, name = trace.tb_frame.f_code, str(trace.tb_frame.f_globals.get("__name__", ""))
        home = _home(code.co_filename)
        if not name.startswith(OURS) and home != _STANDARD:
            frames.append((home, f"{code.co_filename}:{trace.tb_lineno} in {code.co_name}"))
        trace = trace.tb_next
    return [said for home, said in frames if home == frames[0][0]][-1] if frames else ""


def _home(file: str) -> Path | None:
    """The folder of the installed package, or of the standard library, that has a file, or None."""
    path = Path(file)
    for folder in _INSTALLED:
        if path.is_relative_to(folder):
            return folder / path.relative_to(folder).parts[0]
    if path.is_relative_to(_STANDARD) or file.startswith("<frozen "):
        return _STANDARD
    return None
