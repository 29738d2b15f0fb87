"""What every client of this package has: `start`, `close` and `async with`."""

from abc import ABC, abstractmethod
from typing import Self


class Startable(ABC):
    """Entering starts the client, leaving closes it. A client whose start failed is closed."""

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @abstractmethod
    async def start(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...
