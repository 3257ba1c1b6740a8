"""Many conversations over one model, as a service on this machine.

An engine fills one target pass a cycle with what all of them need; HTTP and a page speak to it.
"""
