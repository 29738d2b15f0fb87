"""A web service on FastAPI: its lifespan has the producer, a dependency gives it to routes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import uvicorn
from aerobee.client import Message, Producer
from fastapi import Depends, FastAPI, Request


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with Producer(group="shop") as producer:
        app.state.producer = producer
        yield


def producer_of(request: Request) -> Producer:
    producer: Producer = request.app.state.producer
    return producer


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=202)
async def order(
    request: Request, producer: Annotated[Producer, Depends(producer_of)]
) -> dict[str, str]:
    receipt = await producer.send(Message("orders", await request.body()))
    return {"message": receipt.msg_id}


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=8000)
