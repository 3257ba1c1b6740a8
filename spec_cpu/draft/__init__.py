"""Who proposes: a file for each source of drafts, all behind the Protocol in `base`.

`tree` is what they propose, `names` what a person calls them, `load` makes them, `memory` keeps
what they learn from one run to the next.
"""
