"""A FastAPI application with one producer and one consumer, which live as long as the application.

NAMESRV_ADDR=127.0.0.1:9876 uvicorn --app-dir docs/use/examples fastapi_orders:app
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request

from rocketpy.client import Message, Producer, PushConsumer, ReceivedMessage


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.paid = set()

    async def paid(message: ReceivedMessage) -> None:
        app.state.paid.update(message.keys)

    async with Producer("shop") as producer, PushConsumer("billing", {"Orders": "paid"}, paid):
        app.state.producer = producer
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{number}")
async def pay(number: str, request: Request) -> dict[str, str]:
    sent = await request.app.state.producer.send(Message("Orders", b"...", tags="paid", keys=number))
    return {"message": sent.msg_id}


@app.get("/orders/{number}")
async def show(number: str, request: Request) -> dict[str, bool]:
    return {"paid": number in request.app.state.paid}
