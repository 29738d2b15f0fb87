"""What every client uses: messages, receipts, security, identity, latency."""
