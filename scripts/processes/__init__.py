"""Several brokers under one supervisor: `--processes` of `aerobee broker` and `aerobee up`."""
