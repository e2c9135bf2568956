"""Runs llama.cpp's own server, out of the wheel `xllamacpp`: serve.py MODEL.gguf NAME PORT SLOTS WINDOW."""
import sys
import time

import xllamacpp

path, name, port, slots, window = sys.argv[1:6]
parameters = xllamacpp.CommonParams()
parameters.model.path = path
parameters.model_alias = {name}
parameters.hostnames = ["127.0.0.1"]
parameters.port = int(port)
parameters.n_parallel = int(slots)
parameters.n_ctx = int(slots) * int(window)
parameters.cpuparams.n_threads = 1
parameters.use_jinja = True
parameters.endpoint_metrics = True
server = xllamacpp.Server(parameters)
while True:
    time.sleep(60)
