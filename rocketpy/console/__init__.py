"""`rocketpy console`: pages about a cluster, alarms, and dead letters that are sent again. For a browser.

Owns: what it has seen of the cluster (`ClusterState`), its sessions, its alarms; all in memory, all bounded.
Runs: in a process of its own, beside any cluster, as one more client; under asyncio, because uvicorn does.
Lifecycle: `run_console` opens the port, then the admin client and a nursery with the poller, the alarms and the HTTP
server; a signal ends all of them. Starlette, uvicorn and Jinja2 are the extra `console`.

    settings, server            options and their faults; what runs
    cluster, history            the state that the poller writes and the pages read
    poller                      asks brokers and name servers on a schedule that costs them almost nothing
    questions, message_search   what single pages ask
    dead_letters                read them, send them again
    login, guard                sessions and accounts; hosts, headers, sizes, times
    views, message_views        one function per page
    rendering, charts           templates, formats of values, numbers of charts (static/charts.js draws them by uPlot)
    alarm_file, notices         rules of alarms; webhook and mail
    health, conditions, alarms  what a broker tells of itself; what is beyond a limit; raised, repeated, cleared
"""
