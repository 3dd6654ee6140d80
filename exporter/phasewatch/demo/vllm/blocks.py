"""The paged KV cache of the simulated vLLM: blocks, who holds them, and what they may be found by again."""

from collections.abc import Iterable, Sequence

Key = tuple[object, int]
"""What the tokens of a block, and all before them, are known by: two prompts that begin alike have the same keys."""


class BlockPool:
    """The blocks of a KV cache.

    As in vLLM, a block that nobody holds any more keeps what is in it until it is needed for something else, the
    longest unused first, and counts as free all the while. One block is the null block and never given out.

    Args:
        blocks: how many there are.
    """

    def __init__(self, blocks: int) -> None:
        self._usable = blocks - 1
        self._free = dict.fromkeys(range(1, blocks))
        self._holders = [0] * blocks
        self._keys: dict[int, Key] = {}
        self._blocks: dict[Key, int] = {}

    @property
    def free(self) -> int:
        """Blocks that nobody holds."""
        return len(self._free)

    @property
    def usage(self) -> float:
        """Share of the blocks that somebody holds."""
        return 1 - len(self._free) / self._usable

    def find(self, keys: Iterable[Key]) -> list[int]:
        """The blocks of the longest beginning that is in the cache."""
        found = []
        for key in keys:
            block = self._blocks.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def unheld(self, blocks: Iterable[int]) -> int:
        """How many of these blocks nobody holds: to hold them takes from those that are free."""
        return sum(self._holders[block] == 0 for block in blocks)

    def hold(self, blocks: Iterable[int]) -> None:
        """Hold blocks that were found."""
        for block in blocks:
            if self._holders[block] == 0:
                del self._free[block]
            self._holders[block] += 1

    def take(self, count: int) -> list[int]:
        """Empty blocks; no more than are free."""
        taken = []
        for _ in range(count):
            block = next(iter(self._free))
            del self._free[block]
            self._holders[block] = 1
            self._forget(block)
            taken.append(block)
        return taken

    def name(self, block: int, key: Key) -> None:
        """Let a block be found. Where another one has the same tokens, that one will be."""
        if key not in self._blocks:
            self._blocks[key] = block
            self._keys[block] = key

    def release(self, blocks: Sequence[int]) -> None:
        """Give blocks up, the last ones to be used again first: beginnings are worth more."""
        for block in reversed(blocks):
            self._holders[block] -= 1
            if self._holders[block] == 0:
                self._free[block] = None

    def _forget(self, block: int) -> None:
        key = self._keys.pop(block, None)
        if key is not None:
            del self._blocks[key]
