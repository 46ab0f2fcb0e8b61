"""A Flask application with the blocking producer.

NAMESRV_ADDR=127.0.0.1:9876 flask --app docs/use/examples/flask_orders.py run
"""

import atexit
import functools

from flask import Flask

from rocketpy.client import Message
from rocketpy.client.sync import Producer

app = Flask(__name__)


@functools.cache
def producer() -> Producer:
    """The producer of this process. The first request opens it: a server may fork before, and a client must not."""
    opened = Producer("shop").start()
    atexit.register(opened.close)
    return opened


@app.post("/orders/<number>")
def pay(number: str) -> dict[str, str]:
    return {"message": producer().send(Message("Orders", b"...", tags="paid", keys=number)).msg_id}
