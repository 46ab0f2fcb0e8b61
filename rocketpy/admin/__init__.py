"""Administration: `mqadmin` with the commands and letters of RocketMQ 4.9, and the library below it.

Owns: `Admin`, one awaitable method per operation, returning typed values; the command line on top (`cli.main`), one
module of `commands/` per family, printing the layouts that scripts in the field parse.
Runs: in the operator's shell or program, under trio or asyncio.
Exit status of commands: 0 done, 1 failed, 2 wrong usage, 3 done in part, 4 not found.

    admin, core                             `Admin`: requests to brokers and name servers, errors
    topic_requests, group_requests          its requests about topics and groups
    topics, offsets, messages               operations of several requests
    progress, statistics, monitoring, sending           the same
    message_source, message_lines, resuming             messages to and from pipelines
    cli, base, connection, commands/        from the command line to an operation
    output, progress_bar, watching, json_rows           how results are shown
    message_output, exports                 what commands print and write
    java_text, java_order, java_files       as Java's mqadmin does it
"""
