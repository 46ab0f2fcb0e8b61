"""A Django application in one file, with the blocking producer.

NAMESRV_ADDR=127.0.0.1:9876 python docs/use/examples/django_orders.py runserver
"""

import atexit
import functools
import sys

from django.conf import settings
from django.core.management import execute_from_command_line
from django.http import HttpRequest, JsonResponse
from django.urls import path

from rocketpy.client import Message
from rocketpy.client.sync import Producer

if not settings.configured:
    settings.configure(ROOT_URLCONF=__name__, SECRET_KEY="an example", DEBUG=True, ALLOWED_HOSTS=["*"])


@functools.cache
def producer() -> Producer:
    """The producer of this process. The first request opens it: a server may fork before, and a client must not."""
    opened = Producer("shop").start()
    atexit.register(opened.close)
    return opened


def pay(request: HttpRequest, number: str) -> JsonResponse:
    sent = producer().send(Message("Orders", b"...", tags="paid", keys=number))
    return JsonResponse({"message": sent.msg_id})


urlpatterns = [path("orders/<str:number>", pay)]

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
