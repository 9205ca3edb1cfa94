"""Checks of every service (discovery, lease) and of every inbox (bad, late and foreign messages)."""

from __future__ import annotations

import json

from baton_contracts import subjects
from baton_contracts.conformance.probe import Check, Probe, expect
from baton_contracts.envelope import Envelope
from baton_contracts.handoffs import Ack, Handoff
from baton_contracts.heartbeats import Lease


def discovery_of(service: str) -> Check:
    async def answers_ping(probe: Probe) -> None:
        answer = await probe.client.request(f"$SRV.PING.{service}", b"", timeout=2)
        body = json.loads(answer.data)
        expect(body.get("name") == service, f"$SRV.PING: name is {body.get('name')!r}, not {service!r}")
        expect(
            body.get("type") == "io.nats.micro.v1.ping_response", f"$SRV.PING: type is {body.get('type')!r}"
        )

    return answers_ping


def lease_of(service: str) -> Check:
    async def sends_lease(probe: Probe) -> None:
        async with probe.listening(subjects.LEASE_ALL) as ear:
            message = await ear.next_where(
                f"a lease of {service}", lambda heard: Lease.decode(heard.data).service == service
            )
        lease = Lease.decode(message.data)
        expect(lease.state == "ready", f"the lease says {lease.state}, not ready")

    return sends_lease


def refuses_garbage(subject: str) -> Check:
    async def check(probe: Probe) -> None:
        ack = await probe.ask(subject, b'{"envelope": 5', Ack)
        expect(ack.verdict == "refused", f"broken JSON was answered {ack.verdict!r}, not 'refused'")
        expect(ack.error is not None, "a refusal must carry an error")

    return check


def _refuses(subject: str, handoff: Handoff, envelope: Envelope, code: str) -> Check:
    async def check(probe: Probe) -> None:
        changed = handoff.model_copy(update={"envelope": envelope})
        ack = await probe.ask(subject, changed.encode(), Ack)
        expect(ack.verdict == "refused", f"answered {ack.verdict!r}, not 'refused'")
        expect(ack.error is not None and ack.error.code == code, f"the error is {ack.error}, not {code}")

    return check


def refuses_foreign_contract(subject: str, handoff: Handoff) -> Check:
    envelope = handoff.envelope.model_copy(update={"contract": "999.0"})
    return _refuses(subject, handoff, envelope, "invalid_request")


def refuses_after_deadline(subject: str, handoff: Handoff) -> Check:
    envelope = handoff.envelope.model_copy(update={"deadline": 1.0})
    return _refuses(subject, handoff, envelope, "deadline_exceeded")
