"""How commands write to the terminal."""
