"""/v1/responses: from items to a request on the relay, from frames to a Response, and what is kept (ADR 21).

`reading` judges the request, `items` knows the items, `chain` gets what is stored before, `output` puts the
answer's items together, `events` and `response_object` tell of it, `stored` gives it back later.
"""
