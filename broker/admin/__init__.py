"""Administrative requests about the whole broker."""
