"""Files of tables, and the log position that a saved table presumes.

json_file        a table as JSON, replaced whole
position_file    two slots in a fixed file, written in place
log_marks        a table is saved only when the log up to its mark is durable
"""
