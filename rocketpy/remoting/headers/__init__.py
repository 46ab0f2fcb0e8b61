"""Custom headers, one module per request family; each class is named as in Java and lists its wire spellings.

A field that Java calls mandatory but never looks at has a default here, and so has a text that may be empty: in the
ROCKETMQ serialisation an empty text cannot be told from an absent one.
"""
