"""Input guardrails: everything that goes in is judged, and personal data masked, before it goes on."""
