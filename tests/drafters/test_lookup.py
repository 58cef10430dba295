"""Lookup tables and their files."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from specli.drafters.base import DraftRequest
from specli.drafters.lookup import Followers, LookupTable, ngram_key, ngram_tokens, read_lookup, write_lookup
from specli.drafters.ngram import NgramDrafter
from specli.drafters.ngram_cache import LookupFiles, NgramCache, weighted_best
from specli.errors import FormatError, ResourceError, SpecliError


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def contents(table: LookupTable) -> dict[tuple[int, ...], dict[int, int]]:
    found = {}
    for key in table:
        followers = table.get(key)
        assert followers is not None
        found[ngram_tokens(key)] = {token: followers.counts[token] for token in followers}
    return found


def test_keys_are_reversible() -> None:
    for ngram in ((0,), (0, 0), (5, 0, 7), (262143, 0, 0, 1)):
        assert ngram_tokens(ngram_key(ngram)) == ngram


def test_learning_counts_every_order_inside_the_chunk() -> None:
    table = LookupTable()
    table.learn([1, 2, 1, 2])
    assert contents(table) == {
        (1,): {2: 2}, (2,): {1: 1}, (1, 2): {1: 1}, (2, 1): {2: 1}, (1, 2, 1): {2: 1},
    }  # fmt: skip


def test_order_of_followers_by_hand() -> None:
    """13 buckets: 1, 14 and 27 share one, in which the newest is first; 2 opened its bucket later, so it leads."""
    followers = Followers()
    for token in (1, 14, 2, 27):
        followers.add(token, 1)
    assert list(followers) == [2, 27, 14, 1]
    assert followers.best == 2


def test_file_bytes_by_hand(tmp_path: Path) -> None:
    table = LookupTable()
    table.add(ngram_key([7, 8]), 3, 2)
    table.add(ngram_key([7, 8]), 4)
    table.add(ngram_key([9]), 5, 2**40)  # counts are 32 bits in the file
    write_lookup(tmp_path / "cache", table)
    expected = words(7, 8, -1, -1, 2, 4, 1, 3, 2) + words(9, -1, -1, -1, 1, 5, 2**31 - 1)
    assert (tmp_path / "cache").read_bytes() == expected
    assert list(tmp_path.iterdir()) == [tmp_path / "cache"]
    assert contents(read_lookup(tmp_path / "cache", n_vocab=10))[(7, 8)] == {4: 1, 3: 2}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x01\x00\x00", "lookup cache of 3 bytes is not a whole number of 4-byte words"),
        (words(1, -1), "lookup cache record at byte 0 names 0 followers, the file has 0 more words"),
        (words(1, -1, -1, -1, 1, 2), "lookup cache record at byte 0 names 1 followers, the file has 1 more words"),
        (words(1, -1, -1, -1, 2**31 - 1, 2, 1), "names 2147483647 followers, the file has 2 more words"),
        (words(1, -1, -1, -1, -5, 2, 1), "lookup cache record at byte 0 names -5 followers, the file has 2 more words"),
        (words(-1, -1, -1, -1, 1, 2, 1), "lookup cache record at byte 0 is not an n-gram: [-1, -1, -1, -1]"),
        (words(1, -1, 2, -1, 1, 2, 1), "lookup cache record at byte 0 is not an n-gram: [1, -1, 2, -1]"),
        (words(1, -1, -1, -1, 1, 10, 1), "lookup cache record at byte 0 has token 10, the vocabulary has 10"),
        (words(1, -2, -1, -1, 1, 2, 1), "lookup cache record at byte 0 has token -2, the vocabulary has 10"),
        (words(1, -1, -1, -1, 1, 2, 1, 1, -1, -1, -1, 1, 2, 0), "lookup cache record at byte 28 has a count of 0"),
    ],
)
def test_broken_files_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "cache"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=re.escape(message)) as caught:
        read_lookup(path, n_vocab=10)
    assert str(caught.value).startswith(f"{path}: ")


def test_missing_static_file_is_an_error_and_missing_dynamic_file_is_not(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="failed to open static lookup cache: "):
        LookupFiles(n_vocab=10, static=tmp_path / "none")
    LookupFiles(n_vocab=10, dynamic=tmp_path / "none")
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_read_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "dynamic"
    path.write_bytes(b"not a cache!")
    with pytest.raises(SpecliError):
        LookupFiles(n_vocab=10, dynamic=path)
    assert path.read_bytes() == b"not a cache!"


def test_failed_writing_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    with pytest.raises(ResourceError, match="cannot write the lookup cache"):
        write_lookup(tmp_path / "cache", LookupTable())
    assert list(tmp_path.iterdir()) == [tmp_path / "cache"]


def test_close_adds_what_all_requests_taught(tmp_path: Path) -> None:
    path = tmp_path / "dynamic"
    for _ in range(2):
        drafter = NgramCache(8, LookupFiles(n_vocab=10, dynamic=path))
        for prompt in ([1, 2], [3, 4]):  # the second request does not go on from the first
            drafter.begin(prompt)
            drafter.draft(DraftRequest(0, prompt, 5, 8))
        drafter.close()
    learnt = contents(read_lookup(path, n_vocab=10))
    assert learnt == {(1,): {2: 2}, (2,): {5: 2}, (1, 2): {5: 2}, (3,): {4: 2}, (4,): {5: 2}, (3, 4): {5: 2}}


def test_dynamic_file_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "dynamic"
    with pytest.raises(ResourceError, match=re.escape(f"{path}: cannot write the lookup cache: No such file")):
        LookupFiles(n_vocab=10, dynamic=path)


def test_dynamic_file_is_used_for_drafting(tmp_path: Path) -> None:
    """Order 1 of the dynamic table needs 4 occurrences, of which three quarters agree."""
    table = LookupTable()
    table.add(ngram_key([5]), 6, 4)
    table.add(ngram_key([6]), 7, 3)
    write_lookup(tmp_path / "dynamic", table)
    drafter = NgramCache(8, LookupFiles(n_vocab=10, dynamic=tmp_path / "dynamic"))
    assert drafter.draft(DraftRequest(0, [1], 5, 8)).tokens == [6]


def test_static_counts_outweigh_plain_ones() -> None:
    plain, static = Followers(), Followers()
    plain.add(1, 90)
    plain.add(2, 1)
    static.add(2, 1)
    assert weighted_best(plain, None) == 1
    assert weighted_best(plain, static) == 2  # 1·100·1 against 90
    plain.add(1, 10)
    assert weighted_best(plain, static) == 2  # a tie, and 2 came later
    plain.add(1, 1)
    assert weighted_best(plain, static) == 1


def test_sequences_side_by_side_share_the_files(tmp_path: Path) -> None:
    """What one of them teaches is written with the rest, and not drafted from before that."""
    path = tmp_path / "dynamic"
    files = LookupFiles(n_vocab=10, dynamic=path)
    drafter = NgramDrafter(lambda: NgramCache(8, files))
    for slot, prompt in enumerate(([1, 2, 1, 2, 1, 2, 1, 2], [3, 4])):
        drafter.begin(slot, prompt)
        drafter.draft([DraftRequest(slot, prompt, 1, 8)])
    assert drafter.draft([DraftRequest(2, [8], 1, 8)])[0].tokens == []
    drafter.close()
    learnt = contents(read_lookup(path, n_vocab=10))
    assert (learnt[1,], learnt[3,], learnt[4,], learnt[8,]) == ({2: 4}, {4: 1}, {1: 1}, {1: 1})
