"""How the demo models were made; `python -m specli.demo.train` runs it, nothing else imports it.

On one thread of a shared Sapphire Rapids machine the target took about an hour (5.7 million tokens), the answers five
minutes, and the drafters about an hour together. The stages draw everything from fixed seeds and
append their losses to `curve.jsonl`; several of the runs were interrupted and continued, so a repetition will come
close, not to the bit.
"""
