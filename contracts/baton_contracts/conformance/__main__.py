"""`python -m baton_contracts.conformance SERVICE [--nats URL] [--user U --password P] [--url URL --key KEY]`

Runs every check against the service that is up; exit status 0 if it fits, 1 if not, 2 if it can't be told.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import traceback
from typing import get_args

from nats.aio.client import Client

from baton_contracts import examples, subjects
from baton_contracts.conformance import common_checks, edge_checks, side_checks, stop_checks
from baton_contracts.conformance.probe import Check, Misfit, Probe
from baton_contracts.example_request import REQUEST_ID
from baton_contracts.handoffs import Handoff
from baton_contracts.subjects import Service

_INBOXES = {
    "prompt_builder": (subjects.prompt, "PromptHandoff", stop_checks.prompt_builder),
    "input_guardrails": (subjects.guard_in, "GuardInHandoff", stop_checks.input_guardrails),
    "llm_gateway": (subjects.gateway, "GatewayHandoff", stop_checks.llm_gateway),
    "output_guardrails": (subjects.guard_out, "GuardOutHandoff", stop_checks.output_guardrails),
    "inference_router": (subjects.route, "RouteHandoff", stop_checks.inference_router),
}
_BESIDE = {
    "engine_worker": stop_checks.engine_worker,
    "embedder": side_checks.embedder,
    "after_answer": side_checks.after_answer,
    "trace_console": side_checks.trace_console,
}


def checks_for(service: Service, url: str, key: str) -> dict[str, Check]:
    """Name → check, in the order in which they run."""
    checks: dict[str, Check] = {
        "answers discovery": common_checks.discovery_of(service),
        "sends its lease": common_checks.lease_of(service),
    }
    if service in _INBOXES:
        subject_of, example, work = _INBOXES[service]
        handoff = examples.EXAMPLES[example]
        assert isinstance(handoff, Handoff)
        subject = subject_of(REQUEST_ID)
        checks |= {
            "refuses garbage": common_checks.refuses_garbage(subject),
            "refuses a foreign contract": common_checks.refuses_foreign_contract(subject, handoff),
            "refuses after the deadline": common_checks.refuses_after_deadline(subject, handoff),
            "does its work": work,
        }
    elif service == "edge_api":
        checks |= edge_checks.checks(url, key)
    else:
        checks["does its work"] = _BESIDE[service]
    return checks


async def run(service: Service, options: argparse.Namespace) -> int:
    client = Client()
    login = {"user": options.user, "password": options.password} if options.user else {}
    await client.connect(servers=[options.nats], connect_timeout=5, max_reconnect_attempts=2, **login)
    probe = Probe(client)
    misfits = 0
    for name, check in checks_for(service, options.url, options.key).items():
        try:
            await check(probe)
        except Misfit as misfit:
            misfits += 1
            _say(f"  misfit  {name}: {misfit}")
        except Exception as error:  # whatever a replacement makes a check raise is a misfit
            misfits += 1
            _say(f"  misfit  {name}: {type(error).__name__}: {error}")
            if options.verbose:
                traceback.print_exc()
        else:
            _say(f"  fits    {name}")
    await client.close()
    _say(f"{service}: {'fits the contract' if not misfits else f'{misfits} misfits'}")
    return 1 if misfits else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="baton_contracts.conformance", description=__doc__)
    parser.add_argument("service", choices=get_args(Service))
    parser.add_argument("--nats", default="nats://127.0.0.1:4222", help="URL of the NATS server")
    parser.add_argument("--user", default="", help="a NATS user that may use every subject (the operator)")
    parser.add_argument("--password", default="")
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="edge_api only: its URL")
    parser.add_argument("--key", default="", help="edge_api only: a valid API key")
    parser.add_argument("--verbose", action="store_true", help="show tracebacks")
    options = parser.parse_args()
    try:
        sys.exit(asyncio.run(run(options.service, options)))
    except OSError as error:
        sys.stderr.write(f"no NATS server at {options.nats}: {error}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
