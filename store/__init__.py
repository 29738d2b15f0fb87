"""The message store: RocketMQ's files on disk. No sockets, threads or asyncio."""
