"""From logits to tokens: the sampler chain, its links, grammars and seeds."""
