"""The limit of open files of this process: each connection and each mapped file takes one."""

NO_LIMIT = 1 << 62


def open_files_max() -> int:
    """The number of files and connections that this process may have open, or `NO_LIMIT`."""
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return NO_LIMIT
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return NO_LIMIT if files == resource.RLIM_INFINITY else files
