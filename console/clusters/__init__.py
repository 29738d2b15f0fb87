"""What the console knows of clusters: samples of their brokers, kept in memory."""
