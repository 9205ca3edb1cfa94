"""Puts the process together: rules, vault, frame inbox and outbox, actor."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from baton_common.actor import Actor
from baton_common.bus import Bus
from baton_common.frame_inbox import FrameInbox
from baton_common.frame_sender import FrameOutbox
from baton_common.intake import InboxLimits
from baton_common.node import Node
from baton_common.vault import Vault
from baton_contracts import subjects
from baton_contracts.handoffs import GuardOutHandoff
from baton_output_guardrails.actor import OutputGuard
from baton_output_guardrails.config import OutputConfig
from baton_output_guardrails.deny import SECRETS, DenyRules, Phrase
from baton_output_guardrails.pump import Patience
from baton_output_guardrails.settings import Settings


def compile_rules(config: OutputConfig) -> DenyRules:
    """Raises ValueError for a phrase in which nothing could be found."""
    phrases = [Phrase(rule.text, rule.whole_words) for rule in config.deny.phrases]
    return DenyRules(phrases, SECRETS if config.deny.secrets else ())


def wire(
    settings: Settings, config: OutputConfig, vault: Vault, rules: DenyRules
) -> Callable[[Node, Bus], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def running(node: Node, bus: Bus) -> AsyncGenerator[None]:
        inbox = FrameInbox(bus, subjects.frames_of_guard(node.instance))
        outbox = FrameOutbox(bus, node.instance, node.leases.read_batches, node.last_words)
        await inbox.start()
        await outbox.start()
        patience = Patience(
            cancel=settings.output_guard_cancel_seconds, takeover=settings.output_guard_takeover_seconds
        )
        guard = OutputGuard(inbox, outbox, vault, rules, config.deny.mode == "monitor", patience)
        node.add(
            Actor(
                node,
                subject=subjects.GUARD_OUT_ALL,
                message=GuardOutHandoff,
                handle=guard.handle,
                stop_number=8,
                limits=InboxLimits(concurrency=settings.output_guard_streams, mailbox=0),
                ack_by_handler=True,
            )
        )
        try:
            yield
        finally:
            await inbox.stop()
            await outbox.stop()

    return running
