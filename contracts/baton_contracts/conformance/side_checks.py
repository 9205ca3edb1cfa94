"""What the services beside the relay must do: embedder, after answer, trace console."""

from __future__ import annotations

from baton_contracts import examples, queries, spans, subjects
from baton_contracts.conformance.probe import Probe, expect
from baton_contracts.example_request import TENANT
from baton_contracts.identifiers import new_request_id


async def embedder(probe: Probe) -> None:
    """One unit vector a text, in order; the same text gives the same vector."""
    query = queries.EmbedQuery(texts=("a cat", "a dog", "a cat"))
    reply = await probe.ask(subjects.embed(new_request_id()), query.encode(), queries.EmbedReply)
    expect(reply.error is None, f"the answer is an error: {reply.error}")
    expect(len(reply.vectors) == 3, f"three texts gave {len(reply.vectors)} vectors")
    norm = sum(value * value for value in reply.vectors[0])
    expect(abs(norm - 1) < 1e-3, f"the squared norm of a vector is {norm:.4f}, not 1")
    distance = max(abs(a - b) for a, b in zip(reply.vectors[0], reply.vectors[2], strict=True))
    expect(distance < 1e-3, "the same text gave two different vectors")


async def after_answer(probe: Probe) -> None:
    """A record delivered twice is one row; a question sees what was stored before it."""
    rid = new_request_id()
    row = examples.EXAMPLES["UsageRecord"].model_copy(
        update={
            "request_id": rid,
            "tenant": TENANT.model_copy(update={"tenant_id": probe.instance}),
        }
    )
    stream = probe.client.jetstream(timeout=5)
    for number in range(2):
        headers = {"Nats-Msg-Id": f"{rid}-{number}"}
        await stream.publish(subjects.after("usage", rid), row.encode(), headers=headers)
    query = queries.BooksQuery(kind="usage", tenant_id=probe.instance, request_id=rid)
    reply = await probe.ask(subjects.books(rid), query.encode(), queries.BooksReply)
    expect(len(reply.usage) == 1, f"a record delivered twice gave {len(reply.usage)} rows")
    foreign = query.model_copy(update={"tenant_id": "somebody-else"})
    reply = await probe.ask(subjects.books(rid), foreign.encode(), queries.BooksReply)
    expect(not reply.usage, "another tenant can read the row")


async def trace_console(probe: Probe) -> None:
    """Spans that were published come back as one trace, to their own tenant only."""
    rid = new_request_id()
    batch = examples.EXAMPLES["SpanBatch"]
    assert isinstance(batch, spans.SpanBatch)
    await probe.client.jetstream(timeout=5).publish(
        subjects.trace(rid), batch.model_copy(update={"request_id": rid}).encode()
    )
    query = queries.ConsoleQuery(path=f"/v1/traces/{rid}", tenant=TENANT)
    reply = await probe.ask(subjects.console(rid), query.encode(), queries.ConsoleReply)
    expect(reply.status == 200 and rid in reply.body, f"the trace is answered {reply.status}")
    stranger = TENANT.model_copy(update={"tenant_id": "somebody-else"})
    query = query.model_copy(update={"tenant": stranger})
    reply = await probe.ask(subjects.console(rid), query.encode(), queries.ConsoleReply)
    expect(reply.status == 404 or reply.error is not None, "another tenant can read the trace")
