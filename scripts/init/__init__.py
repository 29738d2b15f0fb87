"""Files for an installation: what `aerobee init` writes."""
