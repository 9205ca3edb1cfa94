"""Do ledger, traces and engine counters say the same?"""
