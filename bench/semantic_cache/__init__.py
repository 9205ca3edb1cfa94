"""How often the semantic cache is right: labelled pairs of questions, by threshold, with and without its
guard.
"""
