"""A REST catalog whose requests, those for its settings and tokens too, end in time: pyiceberg's
wait without an end."""

from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from requests import Session
from requests.adapters import HTTPAdapter

REQUEST_SECONDS = 60.0  # for an answer of the catalog, and for its connection


class TimedCatalog(RestCatalog):
    """pyiceberg's, with a limit of time."""

    def _config_headers(self, session: Session) -> None:
        super()._config_headers(session)
        for scheme in ("http://", "https://"):
            session.mount(scheme, _TimedAdapter())


class _TimedAdapter(HTTPAdapter):
    def send(self, *arguments: Any, **options: Any) -> Any:
        options["timeout"] = options.get("timeout") or REQUEST_SECONDS
        return super().send(*arguments, **options)
