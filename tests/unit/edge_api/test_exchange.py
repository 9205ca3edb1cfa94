from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton_common.errors import RequestFailed
from baton_edge_api.cache_control import CacheWish, cache_wish
from baton_edge_api.exchange import choose_request_id, listed_header

RID = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"


def choose(*headers: tuple[bytes, bytes], busy: str = "") -> tuple[str, str | None]:
    return choose_request_id({"headers": list(headers)}, lambda request_id: request_id == busy)


@pytest.mark.parametrize("given_id", [RID, RID.upper(), "0af76519-16cd-43dd-8448-eb211c80319c"])
def test_a_proper_id_is_taken_in_canonical_form(given_id: str) -> None:
    assert choose((b"x-request-id", given_id.encode())) == (RID, None)


@pytest.mark.parametrize(
    "hostile",
    [b"", b"a.b.>", b"*", b"0" * 32, b"x" * 10_000, b"\xff" * 32, RID.encode() + b".", b" " + RID.encode()],
)
def test_an_improper_id_is_refused_and_never_repeated(hostile: bytes) -> None:
    with pytest.raises(RequestFailed) as caught:
        choose((b"x-request-id", hostile))
    error = caught.value.error
    assert (error.code, error.param) == ("invalid_request_id", "x-request-id")
    if hostile.strip():
        assert hostile.decode("latin-1") not in error.message


def test_two_ids_are_none() -> None:
    with pytest.raises(RequestFailed):
        choose((b"x-request-id", RID.encode()), (b"x-request-id", RID.encode()))


def test_a_trace_id_is_taken_with_its_span() -> None:
    assert choose((b"traceparent", f"00-{RID}-{SPAN}-01".encode())) == (RID, SPAN)


def test_x_request_id_goes_before_traceparent() -> None:
    other = "1" * 32
    assert (
        choose((b"x-request-id", other.encode()), (b"traceparent", f"00-{RID}-{SPAN}-01".encode()))[0]
        == other
    )


@pytest.mark.parametrize(
    "broken",
    [
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{RID}-{'0' * 16}-01",
        f"00-{RID.upper()}-{SPAN}-01",
        f"00-{RID}-{SPAN}",
        "a.b.>",
        "",
    ],
)
def test_a_broken_traceparent_is_passed_over(broken: str) -> None:
    request_id, parent = choose((b"traceparent", broken.encode()))
    assert (len(request_id), parent) == (32, None)
    assert request_id != RID


def test_a_trace_under_way_gets_another_request_id() -> None:
    request_id, parent = choose((b"traceparent", f"00-{RID}-{SPAN}-01".encode()), busy=RID)
    assert (request_id != RID, parent) == (True, None)


@given(st.binary(max_size=64))
def test_whatever_comes_the_id_is_a_subject_token(raw: bytes) -> None:
    try:
        request_id, _ = choose((b"x-request-id", raw))
    except RequestFailed:
        return
    assert len(request_id) == 32
    assert set(request_id) <= set("0123456789abcdef")


def test_a_list_may_be_given_in_parts() -> None:
    scope = {"headers": [(b"cache-control", b"max-age=60"), (b"a", b"b"), (b"cache-control", b"No-Store")]}
    assert cache_wish(listed_header(scope, b"cache-control"), None) == CacheWish(store=False)
    assert listed_header(scope, b"pragma") is None
