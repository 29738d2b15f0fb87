"""What the console changes in a cluster: previewed, confirmed, with a result for each place."""
