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
from baton_contracts.errors import ErrorBody
from baton_contracts.example_request import (
    CHAT,
    ENVELOPE,
    OTHER_REQUEST_ID,
    PROMPT,
    REQUEST_ID,
    RUN_ID,
    SAMPLING,
    TENANT,
    USAGE,
    WITH_TOOLS,
    WORK,
)

ENGINE = "engine_worker-11223344"
GATEWAY = "llm_gateway-55667788"
GUARD = "output_guardrails-99aabbcc"
ROUTER = "inference_router-ddeeff00"
_FRAME: dict[str, Any] = {"request_id": REQUEST_ID, "attempt": 1, "sender": ENGINE}
_OTHER_FRAME: dict[str, Any] = _FRAME | {"request_id": OTHER_REQUEST_ID}

EXAMPLES: dict[str, WireModel] = {
    "PromptHandoff": handoffs.PromptHandoff(envelope=ENVELOPE, chat=CHAT),
    "GuardInHandoff": handoffs.GuardInHandoff(envelope=ENVELOPE, chat=CHAT, prompt=PROMPT),
    "GatewayHandoff": handoffs.GatewayHandoff(envelope=ENVELOPE, chat=CHAT, prompt=PROMPT, vault="bm9uY2U="),
    "GuardOutHandoff": handoffs.GuardOutHandoff(envelope=ENVELOPE, gateway=GATEWAY),
    "RouteHandoff": handoffs.RouteHandoff(envelope=ENVELOPE, work=WORK, gateway=GATEWAY, guard=GUARD),
    "EngineHandoff": handoffs.EngineHandoff(
        envelope=ENVELOPE,
        work=WORK,
        gateway=GATEWAY,
        guard=GUARD,
        router=ROUTER,
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
        gateway=GATEWAY,
        guard=GUARD,
        router=ROUTER,
    ),
    "Ack.held": handoffs.Ack(verdict="held", instance=ENGINE, waiting=1, running=3),
    "Ack.refused": handoffs.Ack(
        verdict="refused",
        instance=ROUTER,
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
        replica=ENGINE,
        gateway=GATEWAY,
        guard=GUARD,
        prompt_tokens=42,
    ),
    "Frame.prologue.resumed": frames.Prologue(
        request_id=REQUEST_ID,
        attempt=2,
        sender="engine_worker-55667788",
        seq=0,
        model="smollm2-135m",
        replica="engine_worker-55667788",
        gateway=GATEWAY,
        guard=GUARD,
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
    "CancelAck": frames.CancelAck(stop="engine_worker", instance=ENGINE, blocks_freed=4),
    "EmbedQuery": queries.EmbedQuery(texts=("Why is my API returning a 503?",)),
    "EmbedQuery.tokens": queries.EmbedQuery(token_ids=((7592, 2088),), whole=True, first=16),
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
        replica=ENGINE,
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
        replica=ENGINE,
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
        replica=ENGINE,
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
