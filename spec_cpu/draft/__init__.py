"""Who proposes: a file for each source of drafts, all behind the Protocols in `base`.

Sources that look up are in `lookup`, those that run a model or a head in `passes`. `load` makes
them, `tree` is what they propose, `names` what a person calls them, `memory` keeps what they learn
from one run to the next.
"""
