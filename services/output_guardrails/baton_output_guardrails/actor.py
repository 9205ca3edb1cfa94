"""The inbox of the output guardrails: `guard.out.RID` opens the filter of one answer.

The queue for the answer's frames is open before the acknowledgement goes out, so no frame can come too early.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from baton_common.context import RequestContext
from baton_common.errors import RequestFailed
from baton_common.frame_inbox import FrameInbox, FrameQueue
from baton_common.frame_sender import FrameOutbox
from baton_common.vault import Vault, VaultError
from baton_contracts import subjects
from baton_contracts.handoffs import Ack, GuardOutHandoff
from baton_output_guardrails.answer_filter import FilterRules
from baton_output_guardrails.answers import Answers
from baton_output_guardrails.deny import DenyRules
from baton_output_guardrails.pump import Patience, Pump, cancel_everywhere


@dataclass(frozen=True)
class OutputGuard:
    """Shared by all requests of the process."""

    inbox: FrameInbox
    outbox: FrameOutbox
    vault: Vault
    rules: DenyRules
    monitor: bool = False
    patience: Patience = field(default_factory=Patience)

    async def handle(self, ctx: RequestContext, handoff: GuardOutHandoff) -> None:
        rules = FilterRules(self._values(ctx, handoff), self.rules, self.monitor)
        answers = Answers(rules, name_sources=handoff.name_sources)
        queue, envelope, node = self._open(ctx), ctx.envelope, ctx.node
        way = subjects.reply(envelope.edge, ctx.request_id)
        out = self.outbox.open(way, ctx.request_id, envelope.attempt, envelope.run_id)
        pump = Pump(node.bus, queue, out, answers, patience=self.patience, wall=node.clock.wall)
        unwatch = node.leases.watch(handoff.gateway, pump.gateway_lost)
        ctx.on_cancel = pump.on_cancel
        try:
            ctx.acknowledge(Ack(verdict="held", instance=node.instance))
            await pump.run()
        except Exception:
            await cancel_everywhere(node.bus, ctx.request_id, "stream_broken")
            raise
        finally:
            unwatch()
            queue.close()
            self.outbox.ended(out)
            _trace(ctx, pump, answers)

    def _values(self, ctx: RequestContext, handoff: GuardOutHandoff) -> dict[str, str]:
        if handoff.vault is None:
            return {}
        try:
            return self.vault.open(ctx.request_id, handoff.vault)
        except VaultError:
            message = "The masked values of this request can't be opened. Do both guardrails have one key?"
            raise RequestFailed.because("stop_failed", message, stop="output_guardrails") from None

    def _open(self, ctx: RequestContext) -> FrameQueue:
        try:
            queue = self.inbox.open(ctx.request_id)
        except KeyError:
            message = f"Request {ctx.request_id} is already under way. Use a new request id."
            raise RequestFailed.because("conflict", message, stop="output_guardrails") from None
        queue.run_id = ctx.envelope.run_id
        return queue


def _trace(ctx: RequestContext, pump: Pump, answers: Answers) -> None:
    tally = pump.tally
    now = ctx.node.clock.wall()
    ctx.spans.add(
        "filter",
        tally.started or now,
        now,
        attributes={
            "frames": tally.frames,
            "attempts": len(tally.attempts),
            "blocked": answers.any_blocked,
            "rules_hit": tuple(sorted(set(answers.hits))),
            "held_back_max_chars": answers.held_chars_max,
            "busy_ms": round(tally.busy_seconds * 1e3, 3),
            "added_us_per_frame": round(tally.busy_seconds / max(1, tally.frames) * 1e6, 1),
            "added_us_max": round(tally.busiest_seconds * 1e6, 1),
        },
    )
