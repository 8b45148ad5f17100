"""Which prefixes this server's pages hold, told to routers as it changes: msgpack over ZMQ, in the shape of vLLM's."""
