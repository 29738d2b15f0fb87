"""Receipt handles: their text, their newest form, their renewal."""
