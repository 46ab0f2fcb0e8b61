"""The broker in the routes of the name servers.

registration    the names and tables that are registered
outer_api       requests to the name servers, and the master's address from them
master_route    a new master registers until each name server has it in its routes
"""
