"""`rocketpy pipeline JOB`: the jobs of rocketpy.spark at the command line.

`main` is the group, and what spark-submit runs on a cluster. `frame` is what all jobs share: options, the session,
progress and exit status. Each other file has the commands of one job or family.
"""
