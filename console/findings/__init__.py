"""What is wrong in a cluster without a word: the rules of `aerobee doctor` and their requests."""
