"""What passes cost on this machine, measured and kept, and what follows from it.

`theory` has the formulas, `plan` their answer: does speculation pay here, and with which k?
"""
