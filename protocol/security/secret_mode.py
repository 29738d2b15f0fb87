"""Which modes of a file keep the secret in it from others."""

import stat

# A service manager or Kubernetes gives a file to a server by the server's group.
FORBIDDEN = stat.S_IRWXO | stat.S_IWGRP
MOST = 0o640


def fault_of(path: str, mode: int) -> str:
    """The reason why a file with this mode can't hold a secret, and the remedy; "" if it can.

    The owner and the group may read the file.
    """
    if not stat.S_ISREG(mode):
        return f"{path} is no plain file; name one"
    if mode & FORBIDDEN:
        return (
            f"{path} has mode {stat.S_IMODE(mode):04o}, so others can read or change it, and "
            f"{MOST:04o} is the most that is allowed; run chmod 600 {path} (for a Secret of "
            "Kubernetes: defaultMode 0440 and an fsGroup)"
        )
    return ""
