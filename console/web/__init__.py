"""The pages of the console, as HTML and as JSON."""
