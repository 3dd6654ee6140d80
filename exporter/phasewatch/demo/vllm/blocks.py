"""The paged KV cache of the simulated vLLM: block allocation and prefix caching."""

from collections.abc import Iterable, Sequence

BlockKey = tuple[object, int]
"""Identifies the tokens of a block and all tokens before them: prompts with a common prefix have the same keys."""


class BlockPool:
    """The blocks of a KV cache.

    As in vLLM, a block that is no longer held keeps its content until it is allocated again, least recently used first,
    and counts as free meanwhile. One block is the null block, which is never allocated.

    Args:
        blocks: number of blocks, including the null block.
    """

    def __init__(self, blocks: int) -> None:
        self._usable = blocks - 1
        self._free = dict.fromkeys(range(1, blocks))
        self._holders = [0] * blocks
        self._keys: dict[int, BlockKey] = {}
        self._blocks: dict[BlockKey, int] = {}

    @property
    def free(self) -> int:
        """Number of blocks that are not held."""
        return len(self._free)

    @property
    def usage(self) -> float:
        """Share of the usable blocks that are held."""
        return 1 - len(self._free) / self._usable

    def find_cached(self, keys: Iterable[BlockKey]) -> list[int]:
        """The cached blocks of the longest known prefix of `keys`."""
        blocks = []
        for key in keys:
            block = self._blocks.get(key)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def count_unheld(self, blocks: Iterable[int]) -> int:
        """How many of these blocks are not held, so that holding them reduces the free blocks."""
        return sum(self._holders[block] == 0 for block in blocks)

    def hold(self, blocks: Iterable[int]) -> None:
        """Hold cached blocks."""
        for block in blocks:
            if self._holders[block] == 0:
                del self._free[block]
            self._holders[block] += 1

    def allocate(self, count: int) -> list[int]:
        """Allocate and hold empty blocks; `count` must not exceed `free`."""
        allocated = []
        for _ in range(count):
            block = next(iter(self._free))
            del self._free[block]
            self._holders[block] = 1
            self._forget(block)
            allocated.append(block)
        return allocated

    def register(self, block: int, key: BlockKey) -> None:
        """Make a block available to `find_cached`, unless another block already has the same tokens."""
        if key not in self._blocks:
            self._blocks[key] = block
            self._keys[block] = key

    def release(self, blocks: Sequence[int]) -> None:
        """Stop holding blocks. The last ones are reused first, since prefixes are more likely to be shared."""
        for block in reversed(blocks):
            self._holders[block] -= 1
            if self._holders[block] == 0:
                self._free[block] = None

    def _forget(self, block: int) -> None:
        key = self._keys.pop(block, None)
        if key is not None:
            del self._blocks[key]
