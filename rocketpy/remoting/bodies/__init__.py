"""JSON bodies, one module per subject; each class is named as in Java and lists its wire spellings.

`X.decode(command.body)` reads one leniently, `x.encode()` writes it as fastjson would (fastjson.py).
"""
