"""The wire as values: bytes in, commands out. No sockets, clocks or trio; client, broker and name server share it.

command, frame, connection      a RemotingCommand, its frame, and the state of one connection
json_header, rocketmq_header     what a header carries, in its two serialisations
schema, headers/, bodies/       header fields and JSON bodies as attrs classes, by request family
fastjson, json_stream, json_writer      JSON in the dialect of all bodies; large ones in steps
work                            long work as generators
abc, fast_path                  the interfaces between reactor and broker
request_log                     a sample of the requests in the log
answers                         from a request code to its handler; answers to what cannot be served
signature                       what a client with an account signs, and how a server checks it
admin_guard, proxy_header, limits               who may ask, from which address, and how much
"""
