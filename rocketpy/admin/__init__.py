"""Administration: `mqadmin` with the commands and letters of RocketMQ 4.9, and the library below it.

Owns: `Admin`, one awaitable method per operation, returning typed values; the command line on top (`cli.main`), one
module of `commands/` per family, printing the layouts that scripts in the field parse.
Runs: in the operator's shell or program, under its own `trio.run`.
Exit status of commands: 0 done, 1 failed, 2 wrong usage, 3 done in part, 4 not found.
"""
