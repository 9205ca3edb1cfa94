"""A golden example of each message, as a replacement for a service may send or get it.

`python -m baton_contracts.examples DIR` writes them as JSON; a test checks that the committed ones are
fresh and that each decodes to an equal message.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from baton_contracts import frames, handoffs, heartbeats, kv_events, prompt, queries, records, spans, tokens
from baton_contracts.base import WireModel
from baton_contracts.envelope import Envelope, Tenant
from baton_contracts.errors import ErrorBody

REQUEST_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
OTHER_REQUEST_ID = "0af7651916cd43dd8448eb211c80319c"
RUN_ID = "a1b2c3d4"
TENANT = Tenant(tenant_id="acme", team="research", key_id="key_7f3a")
ENVELOPE = Envelope(
    request_id=REQUEST_ID,
    run_id=RUN_ID,
    tenant=TENANT,
    edge="edge_api-0a1b2c3d",
    conversation_id="conv_1f2e3d4c5b6a7988",
    deadline=1_800_000_300.0,
    sent_at=1_800_000_000.125,
    parent_span_id="00f067aa0ba902b7",
)
CHAT = prompt.ChatRequest(
    model="auto",
    messages=(prompt.Message(role="user", parts=(prompt.Part(text="Why is my API returning a 503?"),)),),
    sampling=prompt.Sampling(max_tokens=200, temperature=0),
    stream=True,
)
PROMPT = prompt.Prompt(
    messages=(
        prompt.Message(
            role="system",
            parts=(
                prompt.Part(text="You are a helpful assistant.\n\n", origin="builder"),
                prompt.Part(text="[1] errors.md: 503\n", origin="builder"),
                prompt.Part(text="No free seat on any replica.", origin="document", chunk_id="c1"),
            ),
        ),
        CHAT.messages[0],
    ),
    chunks=(prompt.Chunk(chunk_id="c1", citation=1, source="errors.md: 503", score=0.71),),
)
WORK = handoffs.EngineWork(model="smollm2-135m", prompt=PROMPT, sampling=CHAT.sampling)
CALL = prompt.ToolCall(call_id="call_5f0c", name="get_status", arguments='{"service":"edge_api"}')
WITH_TOOLS = prompt.Prompt(
    messages=(
        CHAT.messages[0],
        prompt.Message(role="assistant", parts=(), tool_calls=(CALL,)),
        prompt.Message(
            role="tool",
            parts=(prompt.Part(text='{"ready_replicas":0}', origin="tool"),),
            tool_call_id=CALL.call_id,
        ),
    ),
    tools=(
        prompt.Tool(
            name="get_status",
            description="How a service is.",
            parameters='{"type":"object","properties":{"service":{"type":"string"}},"required":["service"]}',
        ),
    ),
    template_variables='{"enable_thinking":false}',
)
SAMPLING = prompt.Sampling(
    max_tokens=200,
    temperature=0.7,
    seed=7,
    presence_penalty=0.5,
    frequency_penalty=0.25,
    repetition_penalty=1.1,
    logit_bias={42: -5.0},
    bad_words=("sorry",),
    n=2,
    logprobs=3,
    structured=prompt.StructuredOutput(kind="json_schema", text='{"type":"object"}', param="response_format"),
)
USAGE = frames.Usage(prompt_tokens=42, cached_tokens=16, completion_tokens=9)
_FRAME: dict[str, Any] = {"request_id": REQUEST_ID, "attempt": 1, "sender": "engine_worker-11223344"}
_OTHER_FRAME: dict[str, Any] = _FRAME | {"request_id": OTHER_REQUEST_ID}

EXAMPLES: dict[str, WireModel] = {
    "PromptHandoff": handoffs.PromptHandoff(envelope=ENVELOPE, chat=CHAT),
    "GuardInHandoff": handoffs.GuardInHandoff(envelope=ENVELOPE, chat=CHAT, prompt=PROMPT),
    "GatewayHandoff": handoffs.GatewayHandoff(envelope=ENVELOPE, chat=CHAT, prompt=PROMPT, vault="bm9uY2U="),
    "GuardOutHandoff": handoffs.GuardOutHandoff(envelope=ENVELOPE, gateway="llm_gateway-55667788"),
    "RouteHandoff": handoffs.RouteHandoff(
        envelope=ENVELOPE, work=WORK, gateway="llm_gateway-55667788", guard="output_guardrails-99aabbcc"
    ),
    "EngineHandoff": handoffs.EngineHandoff(
        envelope=ENVELOPE,
        work=WORK,
        gateway="llm_gateway-55667788",
        guard="output_guardrails-99aabbcc",
        router="inference_router-ddeeff00",
    ),
    "EngineHandoff.tools": handoffs.EngineHandoff(
        envelope=ENVELOPE,
        work=handoffs.EngineWork(
            model="qwen2.5-coder-0.5b",
            prompt=WITH_TOOLS,
            sampling=SAMPLING,
            tool_choice=prompt.ToolChoice(mode="none", parallel=False),
            priority=1,
            cache_salt="acme\0mine",
        ),
        gateway="llm_gateway-55667788",
        guard="output_guardrails-99aabbcc",
        router="inference_router-ddeeff00",
    ),
    "Ack.held": handoffs.Ack(verdict="held", instance="engine_worker-11223344", waiting=1, running=3),
    "Ack.refused": handoffs.Ack(
        verdict="refused",
        instance="inference_router-ddeeff00",
        error=ErrorBody(
            code="queue_full",
            message="Every replica of smollm2-135m has a full queue. Try again in 3 s.",
            stop="inference_router",
            retry_after_seconds=3,
        ),
    ),
    "Frame.held": frames.Held(request_id=REQUEST_ID, sender="prompt_builder-01020304", stop="prompt_builder"),
    "Frame.prologue": frames.Prologue(
        **_FRAME,
        seq=0,
        model="smollm2-135m",
        replica="engine_worker-11223344",
        gateway="llm_gateway-55667788",
        guard="output_guardrails-99aabbcc",
        prompt_tokens=42,
    ),
    "Frame.prologue.resumed": frames.Prologue(
        request_id=REQUEST_ID,
        attempt=2,
        sender="engine_worker-55667788",
        seq=0,
        model="smollm2-135m",
        replica="engine_worker-55667788",
        gateway="llm_gateway-55667788",
        guard="output_guardrails-99aabbcc",
        prompt_tokens=42,
        resumed=(2,),
    ),
    "Frame.data": frames.Data(**_FRAME, seq=1, text="No free", token_ids=(2082, 1822)),
    "Frame.data.call": frames.Data(
        **_FRAME,
        seq=1,
        reasoning="I look it up.",
        tool_calls=(
            frames.ToolCallPiece(index=0, call_id="call_5d1e", name="get_status", arguments='{"host": '),
        ),
        token_ids=(314,),
    ),
    "Frame.data.logprobs": frames.Data(
        **_FRAME,
        seq=1,
        index=1,
        text="No",
        token_ids=(2082,),
        logprobs=(
            frames.TokenLogprob(
                text="No",
                token_bytes=(78, 111),
                logprob=-0.25,
                top=(frames.RatedToken(text="No", token_bytes=(78, 111), logprob=-0.25),),
            ),
        ),
    ),
    "Frame.data.tokens": frames.Data(
        **_FRAME,
        seq=2,
        text="No",
        token_ids=(2082,),
        tokens=(frames.SpelledToken(token_id=2082, token_bytes=(78, 111)),),
    ),
    "Frame.data.prompt": frames.Data(
        **_FRAME,
        seq=1,
        prompt=frames.PromptPiece(
            start=0,
            tokens=(
                frames.SpelledToken(token_id=19556, token_bytes=(72, 105)),
                frames.SpelledToken(token_id=17, token_bytes=(33,)),
            ),
            logprobs=(None, frames.TokenLogprob(text="!", token_bytes=(33,), logprob=-1.5, token_id=17)),
        ),
    ),
    "Frame.data.ends": frames.Data(
        **_FRAME, seq=1, index=1, text=" seat.", token_ids=(9,), finish_reason="stop"
    ),
    "Frame.end": frames.End(**_FRAME, seq=2, finish_reason="stop", usage=USAGE, blocks_freed=4),
    "Frame.end.several": frames.End(
        **_FRAME, seq=2, finish_reason="stop", finish_reasons=("stop", "length"), usage=USAGE, blocks_freed=4
    ),
    "Frame.error": frames.Error(
        **_FRAME,
        error=ErrorBody(code="upstream_error", message="The engine failed.", stop="engine_worker"),
        final=False,
    ),
    "Resend": frames.Resend(attempt=1, first_seq=7),
    "FrameBatch": frames.FrameBatch(
        frames=(
            frames.Data(**_FRAME, seq=7, text=" seat"),
            frames.Data(**_OTHER_FRAME, seq=3, text="No"),
        )
    ),
    "Resent": frames.Resent(available=True, frames=(frames.Data(**_FRAME, seq=7, text=" seat"),)),
    "Cancel": frames.Cancel(request_id=REQUEST_ID, reason="client_disconnected"),
    "CancelAck": frames.CancelAck(stop="engine_worker", instance="engine_worker-11223344", blocks_freed=4),
    "EmbedQuery": queries.EmbedQuery(texts=("Why is my API returning a 503?",)),
    "EmbedQuery.tokens": queries.EmbedQuery(token_ids=((7592, 2088),)),
    "EmbedReply": queries.EmbedReply(model="all-MiniLM-L6-v2", vectors=((0.6, 0.8),), prompt_tokens=9),
    "IngestQuery": queries.IngestQuery(
        tenant_id="acme", source="errors.md", media_type="text/markdown", text="# 503\n\nNo free seat."
    ),
    "IngestReply": queries.IngestReply(chunks=1, added=1),
    "BooksQuery": queries.BooksQuery(kind="usage", tenant_id="acme", request_id=REQUEST_ID),
    "BooksReply": queries.BooksReply(
        turns=(
            queries.StoredTurn(
                request_id=REQUEST_ID,
                model="smollm2-135m",
                asked=(records.StoredMessage(role="user", content="Why is my API returning a 503?"),),
                answer="No free seat.",
                cut_short=False,
                created_at=1_800_000_001.5,
            ),
        )
    ),
    "ConsoleQuery": queries.ConsoleQuery(path=f"/v1/traces/{REQUEST_ID}", tenant=TENANT),
    "ConsoleReply": queries.ConsoleReply(body="{}"),
    "ReplicaHeartbeat": heartbeats.ReplicaHeartbeat(
        replica="engine_worker-11223344",
        model="smollm2-135m",
        state="ready",
        sent_at=1_800_000_000.0,
        num_running=3,
        max_running=64,
        kv_usage=0.25,
        kv_blocks_total=4096,
        kv_blocks_held=1024,
        context_length=8192,
    ),
    "Lease": heartbeats.Lease(service="edge_api", instance="edge_api-0a1b2c3d", state="ready"),
    "Lease.embedder": heartbeats.Lease(
        service="embedder",
        instance="embedder-0a1b2c3d",
        state="ready",
        embeds=heartbeats.EmbeddingModel(name="all-MiniLM-L6-v2", dimensions=384, max_tokens=256),
    ),
    "KvEvents": kv_events.KvEvents(
        replica="engine_worker-11223344",
        epoch="5eed5eed5eed5eed",
        seq=1,
        changes=(
            kv_events.KvChange(kind="removed", block_hashes=("60303ae2",)),
            kv_events.KvChange(kind="stored", parent_hash="9f86d081", block_hashes=("fcde2b2e", "486ea462")),
        ),
    ),
    "KvAsk": kv_events.KvAsk(asker="inference_router-0a1b2c3d"),
    "KvAskReply": kv_events.KvAskReply(epoch="5eed5eed5eed5eed", next_seq=2),
    "TokensQuery": tokens.TokensQuery(model="smollm2-135m", prompt=PROMPT, cache_salt="acme", want="hashes"),
    "TokensReply": tokens.TokensReply(
        num_tokens=19,
        token_ids=(
            1,
            9690,
            198,
            2683,
            359,
            253,
            5356,
            5646,
            11173,
            3365,
            3511,
            308,
            34519,
            28,
            7018,
            411,
            407,
            19712,
            8182,
        ),
        tokenizer="0a1b2c3d4e5f6071",
        block_hashes=("60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752",),
    ),
    "SpanBatch": spans.SpanBatch(
        request_id=REQUEST_ID,
        tenant_id="acme",
        spans=(
            spans.Span(
                span_id="00f067aa0ba902b7",
                stop=3,
                service="prompt_builder",
                instance="prompt_builder-01020304",
                name="handle",
                start=1_800_000_000.126,
                duration=0.004,
                attributes={"chunks": 1},
            ),
        ),
    ),
    "UsageRecord": records.UsageRecord(
        request_id=REQUEST_ID,
        run_id=RUN_ID,
        attempt=1,
        tenant=TENANT,
        model="smollm2-135m",
        replica="engine_worker-11223344",
        usage=USAGE,
        outcome="finished",
        finish_reason="stop",
        started_at=1_800_000_000.2,
        ended_at=1_800_000_001.4,
    ),
    "ResponseRecord": records.ResponseRecord(
        request_id=REQUEST_ID,
        run_id=RUN_ID,
        response_id=f"resp_{REQUEST_ID}{RUN_ID}",
        tenant=TENANT,
        model="smollm2-135m",
        status="completed",
        input='[{"id":"msg_i0","type":"message","role":"user","content":[{"type":"input_text","text":"Why?"}]}]',
        output='[{"id":"msg_o0","type":"message","role":"assistant","status":"completed","content":[]}]',
        body='{"object":"response","status":"completed"}',
        created_at=1_800_000_001.5,
    ),
    "ConversationRecord": records.ConversationRecord(
        request_id=REQUEST_ID,
        run_id=RUN_ID,
        conversation_id="conv_1f2e3d4c5b6a7988",
        tenant=TENANT,
        model="smollm2-135m",
        asked=(records.StoredMessage(role="user", content="Why is my API returning a 503?"),),
        answer="No free seat.",
        cut_short=False,
        finish_reason="stop",
        created_at=1_800_000_001.5,
    ),
}


def encoded(message: WireModel) -> str:
    body = json.loads(message.model_dump_json(exclude_none=True))
    return json.dumps(body, indent=2, ensure_ascii=False) + "\n"


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, message in EXAMPLES.items():
        (folder / f"{name}.json").write_text(encoded(message))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
