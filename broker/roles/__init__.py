"""What a broker does because it is a master or a slave: `role` has the questions."""
