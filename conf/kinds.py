"""The types of settings that several daemons have."""

from typing import Annotated, Literal

from msgspec import Meta

BindAddress = Annotated[str, Meta(min_length=1)]  # an empty one would be every address
Port = Annotated[int, Meta(ge=0, le=65_535)]
IntervalMs = Annotated[int, Meta(ge=10, le=86_400_000)]
IdleSeconds = Annotated[int, Meta(ge=10, le=86_400)]
TlsMode = Literal["disabled", "permissive", "enforcing"]
LOG_FILE_MIB = 64  # the size at which a log file is renamed
# What `log_levels.parse` takes, as far as a pattern says it.
LogLevels = Annotated[str, Meta(max_length=1_024, pattern=r"^[A-Za-z0-9_.,= ]*$")]
# What a page may link to.
ConsoleUrl = Annotated[str, Meta(max_length=1_024, pattern=r"^(https?://[!-~]+)?$")]
LogFormat = Literal["text", "json"]
LogFileMib = Annotated[int, Meta(ge=1, le=4_096)]
