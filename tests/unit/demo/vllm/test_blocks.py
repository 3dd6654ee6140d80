from phasewatch.demo.vllm.blocks import BlockPool


def test_one_block_is_never_given_out() -> None:
    pool = BlockPool(11)
    assert (pool.free, pool.usage) == (10, 0.0)
    assert len(set(pool.take(10))) == 10
    assert (pool.free, pool.usage) == (0, 1.0)


def test_what_is_given_up_can_be_taken_again() -> None:
    pool = BlockPool(5)
    pool.release(pool.take(4))
    assert pool.free == 4
    assert len(set(pool.take(4))) == 4


def test_a_beginning_is_found_as_far_as_it_is_known() -> None:
    pool = BlockPool(9)
    blocks = pool.take(3)
    for index, block in enumerate(blocks):
        pool.name(block, ("a", index))
    assert pool.find([("a", 0), ("a", 1), ("b", 2), ("a", 2)]) == blocks[:2]
    assert pool.find([("b", 0), ("a", 1)]) == []


def test_a_block_is_found_after_it_was_given_up_until_it_is_needed() -> None:
    pool = BlockPool(4)
    (block,) = pool.take(1)
    pool.name(block, ("a", 0))
    pool.release([block])
    assert pool.find([("a", 0)]) == [block]
    pool.take(3)
    assert pool.find([("a", 0)]) == []


def test_to_hold_a_block_that_was_given_up_takes_from_the_free_and_one_that_is_held_does_not() -> None:
    pool = BlockPool(5)
    (block,) = pool.take(1)
    assert pool.unheld([block]) == 0
    pool.release([block])
    assert pool.unheld([block]) == 1
    pool.hold([block])
    assert pool.free == 3
    pool.hold([block])
    assert pool.free == 3
    pool.release([block])
    assert pool.free == 3
    pool.release([block])
    assert pool.free == 4


def test_a_held_block_is_never_taken() -> None:
    pool = BlockPool(5)
    (held,) = pool.take(1)
    pool.release([held])
    pool.hold([held])
    assert held not in pool.take(3)
    assert pool.free == 0


def test_the_longest_unused_goes_first_and_of_one_request_its_end() -> None:
    pool = BlockPool(5)
    first, second = pool.take(2), pool.take(2)
    pool.release(second)
    pool.release(first)
    assert pool.take(4) == [*reversed(second), *reversed(first)]


def test_of_two_blocks_with_the_same_tokens_the_first_is_found() -> None:
    pool = BlockPool(5)
    one, other = pool.take(2)
    pool.name(one, ("a", 0))
    pool.name(other, ("a", 0))
    assert pool.find([("a", 0)]) == [one]
    pool.release([other])
    pool.take(3)
    assert pool.find([("a", 0)]) == [one]
