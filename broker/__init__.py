"""The broker: takes, keeps and hands out messages."""
