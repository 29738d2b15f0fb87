"""Messages for people: bodies shown, searched and followed, and one message's way."""
