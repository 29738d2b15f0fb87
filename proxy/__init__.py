"""The gRPC proxy: serves the clients of RocketMQ 5 and speaks remoting to brokers."""
