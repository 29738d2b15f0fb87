"""Read a store folder without a broker, also while a broker uses it."""

import sys

from aerobee.store import StoreView

view = StoreView(sys.argv[1] if len(sys.argv) > 1 else "aerobee-data")
for topic, queues in view.topics().items():
    for queue in queues:
        sizes = view.entries(topic, queue)["size"]  # a numpy array over the file of the queue
        print(topic, queue, f"{len(sizes)} messages, {sizes.sum()} bytes")
        # Arrow batches of bounded size; they need pyarrow, of `aerobee[spark]`.
        for batch in view.batches(topic, queue, columns=["queue_offset", "body"]):
            print(batch.num_rows, "rows")
