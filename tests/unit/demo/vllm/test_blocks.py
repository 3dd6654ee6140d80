from phasewatch.demo.vllm.blocks import BlockPool


def test_the_null_block_is_never_allocated() -> None:
    pool = BlockPool(11)
    assert (pool.free, pool.usage) == (10, 0.0)
    assert len(set(pool.allocate(10))) == 10
    assert (pool.free, pool.usage) == (0, 1.0)


def test_released_blocks_can_be_allocated_again() -> None:
    pool = BlockPool(5)
    pool.release(pool.allocate(4))
    assert pool.free == 4
    assert len(set(pool.allocate(4))) == 4


def test_the_longest_cached_prefix_is_found() -> None:
    pool = BlockPool(9)
    blocks = pool.allocate(3)
    for index, block in enumerate(blocks):
        pool.register(block, ("a", index))
    assert pool.find_cached([("a", 0), ("a", 1), ("b", 2), ("a", 2)]) == blocks[:2]
    assert pool.find_cached([("b", 0), ("a", 1)]) == []


def test_a_released_block_stays_cached_until_it_is_allocated_again() -> None:
    pool = BlockPool(4)
    (block,) = pool.allocate(1)
    pool.register(block, ("a", 0))
    pool.release([block])
    assert pool.find_cached([("a", 0)]) == [block]
    pool.allocate(3)
    assert pool.find_cached([("a", 0)]) == []


def test_holding_a_released_block_reduces_the_free_blocks_and_holding_a_held_one_does_not() -> None:
    pool = BlockPool(5)
    (block,) = pool.allocate(1)
    assert pool.count_unheld([block]) == 0
    pool.release([block])
    assert pool.count_unheld([block]) == 1
    pool.hold([block])
    assert pool.free == 3
    pool.hold([block])
    assert pool.free == 3
    pool.release([block])
    assert pool.free == 3
    pool.release([block])
    assert pool.free == 4


def test_a_held_block_is_never_allocated() -> None:
    pool = BlockPool(5)
    (held,) = pool.allocate(1)
    pool.release([held])
    pool.hold([held])
    assert held not in pool.allocate(3)
    assert pool.free == 0


def test_the_least_recently_used_request_is_evicted_first_and_from_its_end() -> None:
    pool = BlockPool(5)
    first, second = pool.allocate(2), pool.allocate(2)
    pool.release(second)
    pool.release(first)
    assert pool.allocate(4) == [*reversed(second), *reversed(first)]


def test_of_two_blocks_with_the_same_tokens_the_first_is_found() -> None:
    pool = BlockPool(5)
    first, second = pool.allocate(2)
    pool.register(first, ("a", 0))
    pool.register(second, ("a", 0))
    assert pool.find_cached([("a", 0)]) == [first]
    pool.release([second])
    pool.allocate(3)
    assert pool.find_cached([("a", 0)]) == [first]
