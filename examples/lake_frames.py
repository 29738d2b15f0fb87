"""Read a topic, its table and what came since, into polars."""

import sys

import aerobee.lake

config = sys.argv[1] if len(sys.argv) > 1 else "lake.yaml"
orders = aerobee.lake.table("orders", config=config)
print(orders.to_polars(["tags", "offset"]).group_by("tags").len())
print(orders.to_arrow(["value"]).num_rows, "messages")  # also: to_pandas, batches
