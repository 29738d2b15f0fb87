"""The commands of `aerobee`, a module for each family."""
