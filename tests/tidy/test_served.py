"""The lists of served requests in the documents are those of the request tables."""

import pytest
from aerobee.scripts.dev import served

from . import tree


@pytest.mark.parametrize("document", ["docs/requests.md", "ARCHITECTURE.md"])
def test_the_list_of_served_requests_is_current(document: str) -> None:
    wanted = served.documents(served.all_served())[document]
    text = (tree.ROOT / document).read_text()
    assert served.replaced(text, wanted) == text, (
        f"{document} is behind; run: python -m aerobee.scripts.dev.served --write"
    )


def test_a_document_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="served: begin"):
        served.replaced("no marks here", "list")
