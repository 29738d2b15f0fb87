"""Messages for people: bodies shown, searched and followed, and the history of one message."""
