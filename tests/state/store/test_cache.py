"""The cache of bounded size: the least recently used leave first."""

from watersmeet.state.store.budget import Cache


def full_cache() -> Cache[str, list[int]]:
    cache: Cache[str, list[int]] = Cache()
    for key in "abc":
        cache.put(key, [0] * 10, 10)
    return cache


def test_the_least_recently_used_leave_first() -> None:
    cache = full_cache()
    assert cache.get("a") == [0] * 10 and cache.get("none") is None
    assert cache.shrink(20) == ["b"]
    assert (list(cache), cache.size, len(cache)) == (["c", "a"], 20, 2)


def test_the_last_value_stays_whatever_it_takes() -> None:
    cache = full_cache()
    assert cache.shrink(0) == ["a", "b"]
    assert list(cache) == ["c"]


def test_a_value_put_again_counts_once() -> None:
    cache = full_cache()
    cache.put("a", [1], 1)
    assert (cache.size, list(cache), cache.get("a")) == (21, ["b", "c", "a"], [1])


def test_values_are_dropped_by_key() -> None:
    cache = full_cache()
    assert cache.drop("a") and not cache.drop("a")
    assert cache.forget(lambda key: key != "c") == ["b"]
    assert (list(cache), cache.size) == (["c"], 10)


def test_values_that_grow_are_measured_again() -> None:
    cache = full_cache()
    value = cache.get("b")
    assert value is not None
    value.extend(range(5))
    assert cache.size == 30
    assert cache.measure(len) == cache.size == 35
    assert cache.shrink(30) == ["a"] and cache.size == 25
