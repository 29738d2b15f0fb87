"""The command `aerobee`: reads its arguments, starts and stops the daemons."""
