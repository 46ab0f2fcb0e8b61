"""The broker in the routes of the name servers.

registration    builds a registration: one body, or several if one would not fit a frame
outer_api       registers at the start, every 30 s, and when a topic changes; finds the address of the master
master_route    a new master registers until each name server has it in its routes
"""
