"""A web service on aiohttp that sends a message for each request.

The producer lives as long as the service. FastAPI's lifespan and Starlette's take the same
`async with Producer(...)` around their `yield`.
"""

from collections.abc import AsyncIterator

from aerobee.client import Message, Producer
from aiohttp import web

PRODUCER = web.AppKey("producer", Producer)


async def producing(app: web.Application) -> AsyncIterator[None]:
    async with Producer(group="shop") as producer:
        app[PRODUCER] = producer
        yield


async def order(request: web.Request) -> web.Response:
    receipt = await request.app[PRODUCER].send(Message("orders", await request.read()))
    return web.json_response({"message": receipt.msg_id}, status=202)


def service() -> web.Application:
    app = web.Application()
    app.cleanup_ctx.append(producing)
    app.router.add_post("/orders", order)
    return app


if __name__ == "__main__":
    web.run_app(service(), host="127.0.0.1", port=8000)
