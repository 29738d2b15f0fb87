"""Which member gets which queue, and the queues of static topics."""
