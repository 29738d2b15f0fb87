"""The vendored definitions of RocketMQ 5 (see NOTICE), and the descriptor set made from them."""
