"""Messages as Arrow columns, made from the bytes of records: the one place of the store for Arrow.

The Spark source and the view of a store use it; the broker never imports it.
"""
