"""The client: producers and consumers for any RocketMQ 4.x name server and broker, ours or the Java one.

Owns: connections to name servers and brokers, the route cache, heartbeats, consumer groups' queues and offsets.
Runs: inside the user's program, in one `trio.run`; `rocketpy.client.sync` brings its own thread for everybody else.
Entry points: `Producer`, `PushConsumer`, `PullConsumer` (async context managers).
Lifecycle: nothing happens in a constructor; entering the context starts the instance's tasks in a nursery that the
context owns, leaving it stops them, tells the brokers and closes the connections.

Decisions (which queue, who owns it, retry or not, may we pull) are plain functions and values in modules of their own;
modules that do I/O only carry them out:

    values and rules   options route allocation queue_selection latency_fault process_queue pull_rules subscription
    requests           api (one method per request code), name_servers, brokers
    duties             instance (routes, heartbeats), rebalance, pull_loop, concurrent, orderly, offset_store
    facades            producer, push_consumer, pull_consumer, sync

Works without the compiled core.
"""
