"""The commands of `rocketpy`, `mqbroker` and `mqnamesrv`, and their checks of machines, brokers and stores.

main, command_line      entry points, arguments, what a command prints
late_commands           commands that are imported when one is named
settings                properties and store that several commands take
console                 options of `rocketpy console`
bench                   benchmarks: run scenario files, compare and show results
cluster                 several brokers of one directory, for trials
child_server            a server that a command starts and stops
completion              scripts for bash, zsh and fish
pipeline/               jobs on Spark
doctor_command          options of `rocketpy doctor`
doctor, findings        what keeps a broker or a client from working, and the remedy
liveness                do the servers that run here answer
client_checks           ... of a client: routes, addresses, subscriptions, clocks
account_checks          ... of accounts
tls_checks              ... of certificates
replication_checks      ... of slaves and groups
store_tools             look into a store, check it, copy it
set_aside               a member's store is moved away, and its broker begins with an empty one
store_progress          bars of checks and copies
"""
