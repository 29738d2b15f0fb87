"""The behaviour of a broker as a master or as a slave: `role` has the questions."""
