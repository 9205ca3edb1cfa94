"""Questions for a prompt's tokens, to the real engine with a tiny model: a token a byte."""

from __future__ import annotations

from typing import Any

from baton_contracts import subjects
from baton_contracts.handoffs import EngineWork
from baton_contracts.identifiers import new_request_id
from baton_contracts.prompt import Message, Part, Prompt, Sampling
from baton_contracts.tokens import TokensQuery, TokensReply
from baton_engine import prefix_hashes
from baton_engine_worker.dialect import Dialect
from baton_engine_worker.prompt_tokens import LONG_PROMPT_CHARACTERS, PromptTokens
from tests.support.fake_engine import FakeEngine
from tests.support.kv_mirror import KvMirror
from tests.support.scripted_answer import Script
from tests.support.tiny_model import BOS, ByteTokenizer
from tests.unit.engine_worker.test_worker import GREEDY, MODEL, Bench, worker

TEXT = "What is the answer to the question?"
WRITTEN = f"user: {TEXT}\nassistant: "


def prompt(text: str = TEXT, role: Any = "user") -> Prompt:
    return Prompt(messages=(Message(role=role, parts=(Part(text=text),)),))


async def ask(bench: Bench, **fields: Any) -> TokensReply:
    query = TokensQuery(**({"model": MODEL, "prompt": prompt()} | fields))
    raw = await bench.bus.request(subjects.tokens(MODEL, new_request_id()), query.encode(), timeout=5)
    return TokensReply.decode(raw)


async def test_what_is_told_grows_with_what_is_wanted() -> None:
    ids = (BOS, *WRITTEN.encode())
    async with worker() as bench:
        count, tokens, whole = [await ask(bench, want=want) for want in ("count", "ids", "hashes")]

    assert (count.num_tokens, count.token_ids, count.block_hashes) == (len(ids), (), ())
    assert (tokens.num_tokens, tokens.token_ids, tokens.block_hashes) == (len(ids), ids, ())
    assert whole.block_hashes == tuple(each.hex() for each in prefix_hashes(ids[:-1], 16))
    assert len(whole.block_hashes) == (len(ids) - 1) // 16


async def test_the_hashes_are_those_that_the_cache_will_tell_of() -> None:
    """And only under the same salt."""
    async with worker() as bench:
        mirror = KvMirror(bench.bus, bench.node.instance)
        await mirror.listen()
        mine = await ask(bench, want="hashes", cache_salt="acme\0")
        theirs = await ask(bench, want="hashes", cache_salt="other\0")
        handoff = bench.handoff(TEXT)
        salted = handoff.work.model_copy(update={"cache_salt": "acme\0"})
        await bench.hand(handoff.model_copy(update={"work": salted}))
        await bench.answer()
        await mirror.until(lambda told: set(mine.block_hashes) <= told.hashes)

    assert mine.block_hashes
    assert not mirror.hashes & set(theirs.block_hashes)


async def test_a_prompt_that_will_be_cut_counts_as_cut_and_is_told_whole() -> None:
    async with worker() as bench:
        reply = await ask(bench, want="hashes", sampling=Sampling(truncate_prompt_tokens=20))
        resumed = await ask(bench, resume_token_ids=(65, 66, 67))
        scored = await ask(bench, want="hashes", sampling=Sampling(prompt_logprobs=0))

    whole = (BOS, *WRITTEN.encode())
    assert (reply.num_tokens, reply.token_ids) == (20, whole)
    assert reply.block_hashes == tuple(each.hex() for each in prefix_hashes(whole[-20:], 16))
    assert resumed.num_tokens == len(whole) + 3
    assert scored.block_hashes == ()


async def test_a_prompt_that_the_engine_would_refuse_is_an_error_in_its_words() -> None:
    async with worker() as bench:
        reply = await ask(bench, prompt=prompt(role="assistant"))

    assert reply.error
    assert (reply.error.code, reply.error.param) == ("invalid_value", "messages")


async def test_a_draining_replica_does_not_answer() -> None:
    async with worker() as bench:
        await bench.node.drain(1)
        subject = subjects.tokens(MODEL, new_request_id())
        assert not [
            each for each in bench.bus.subscriptions if each.pattern == subjects.tokens_of_model(MODEL)
        ]
        assert subject.startswith(subjects.tokens_of_model(MODEL)[:-1])


class CountingTokenizer(ByteTokenizer):
    def __init__(self) -> None:
        self.num_calls = 0

    def apply_chat_template(self, *args: Any, **kwargs: Any) -> list[int]:
        self.num_calls += 1
        return super().apply_chat_template(*args, **kwargs)


def counting(dialect: Dialect | None = None) -> tuple[CountingTokenizer, PromptTokens]:
    engine, tokenizer = FakeEngine(Script()), CountingTokenizer()
    engine.tokenizer = tokenizer  # type: ignore[assignment]
    return tokenizer, PromptTokens(engine, dialect or Dialect())


async def test_tokens_of_the_same_tokenizer_are_believed_and_others_are_made_again() -> None:
    tokenizer, tokens = counting()
    work = EngineWork(model=MODEL, prompt=prompt(), prompt_token_ids=(5, 6), sampling=GREEDY)

    believed = await tokens.of_work(work.model_copy(update={"prompt_tokenizer": tokens.tokenizer_id}))
    assert (believed, tokenizer.num_calls) == ([5, 6], 0)
    made = await tokens.of_work(work.model_copy(update={"prompt_tokenizer": "another"}))
    assert (made, tokenizer.num_calls) == ([BOS, *WRITTEN.encode()], 1)


async def test_another_way_of_showing_tools_is_another_tokenizer() -> None:
    _, plain = counting()
    _, shows = counting(Dialect(template_shows_tools=True))
    assert plain.tokenizer_id != shows.tokenizer_id
    assert plain.tokenizer_id == counting()[1].tokenizer_id


async def test_a_long_prompt_is_the_same_off_the_event_loop() -> None:
    text = "x" * (LONG_PROMPT_CHARACTERS + 1)
    _, tokens = counting()
    ids = await tokens.of_work(EngineWork(model=MODEL, prompt=prompt(text)))
    assert bytes(ids[1:]) == f"user: {text}\nassistant: ".encode()
