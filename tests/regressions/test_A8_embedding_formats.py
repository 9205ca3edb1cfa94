"""A8: the Python SDK asks for base64 by default; the same floats come as numbers; another format is 400."""

from __future__ import annotations

import httpx
import openai
import pytest

from tests.support.edge_process import KEY, running_edge
from tests.support.relay import eventually
from tests.support.scripted_embedder import MODEL, direction, scripted_embedder


async def test_base64_and_numbers_are_the_same_floats(nats_url: str) -> None:
    async with (
        running_edge(nats_url) as edge,
        scripted_embedder(edge.relay.bus) as embedder,
        openai.AsyncOpenAI(
            base_url=f"{edge.url}/v1", api_key=KEY, http_client=httpx.AsyncClient(trust_env=False)
        ) as sdk,
    ):
        await eventually(lambda: bool(edge.node.leases.ready("embedder")))
        texts = ["six times", "seven"]
        by_default = await sdk.embeddings.create(model=MODEL, input=texts)
        as_numbers = await sdk.embeddings.create(model=MODEL, input=texts, encoding_format="float")
        assert [item.embedding for item in by_default.data] == [item.embedding for item in as_numbers.data]
        assert by_default.data[1].embedding == pytest.approx(direction(5), abs=1e-7)
        assert by_default.usage.total_tokens == 14
        assert len(embedder.queries) == 2
        with pytest.raises(openai.BadRequestError) as refused:
            await sdk.embeddings.create(model=MODEL, input="a", encoding_format="int8")  # type: ignore[call-overload]
        assert refused.value.param == "encoding_format"
