"""The client generator: a load by the Python client of each system, the same for RocketMQ, NATS and Kafka.

Its figures are those of a Python client with a broker behind it: the client is the bottleneck long before a broker is.
It serves to compare latencies of systems at one rate, and for what the native generator cannot sign.

    system       what the generator asks of a client
    generator    the load: pace, latencies, seconds
    rocketmq, nats, kafka    one system each; their clients are imported when they are used
"""
