"""Half messages until they end: progress, check-backs, renewal.

transactions             rounds over the open half messages
transaction_questions    asks producers about open transactions, and counts it
transaction_progress     the position below which every half message has ended
transaction_renewal      stores old open half messages again, so that they do not hold others
"""
