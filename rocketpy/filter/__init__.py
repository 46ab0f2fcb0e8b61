"""SQL92 filters: conditions on the properties of a message, as in `region = 'eu' AND amount BETWEEN 5 AND 10`.

Text, tree, program: `parser.parse` reads a text into the tree of `expression`, `evaluate.evaluate` is the meaning of a
tree, and `program.compile_program` writes it as bytes that csrc/store/filters/filter.c evaluates for each message of a
pull. Tests give both evaluators the same input. `bloom` computes the filter bits of a subscription.

Pure functions on values, for the broker, for clients and for Spark. The parser library is imported with the first text
that is parsed: most processes never see one.
"""
