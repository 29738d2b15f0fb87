"""The custom headers of requests and answers, declared by their wire names."""
