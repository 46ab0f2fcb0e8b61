"""Access control: which account may send which request. Signatures, permissions and files are those of RocketMQ 4.9.

Owns: the rules, as values and pure functions.
Runs: `AccessValidator` in the manager, query workers and name servers; `AclFiles` in the manager and name servers, in a
thread, because reading and writing files waits for the disk.
Entry points:

    files = AclFiles(home, now_ms=clock)
    validator = AccessValidator(files.load(), strict=True, brokers=frozenset({"broker-key"}))
    refusal = validator.check(request, peer.host)           # None: serve it
    accounts = files.poll()                                  # each POLL_INTERVAL_S; None: nothing has changed
    if accounts is not None:
        validator.accounts = accounts                        # a frozen value: other processes get it pickled

From the bottom up; PyYAML is imported by `document` when the first file is read, by nothing else:

    addresses, permissions, accounts    white lists, bits and words, an account and the table of all
    resources, validator                what each request code needs, and the decision
    document, plain_acl                 a YAML file within bounds; the accounts in it, and changes of them
    files                               the files of a server
    credentials                         the account by which a broker or mqadmin signs its own requests
    reference                           prints docs/run/access-control-codes.md
"""
