"""Several processes that answer prompts, each with models of its own (docs/batch.md).

`pool` has what a pool of workers is, `processes` the one of this machine's processes, `dispatch` gives out the prompts.
"""
