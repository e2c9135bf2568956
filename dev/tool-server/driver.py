"""Runs Python for the tool server, cell by cell, in one namespace.

A request on stdin is a big-endian 32-bit length and so much JSON: {"token", "code"}. The token, on file descriptor 3,
says that the cell is over. It is new for every request, so nothing that a cell prints or writes passes for it.
"""

import ast
import io
import json
import linecache
import os
import struct
import sys
import traceback
import types

ANSWERS = 3


def main():
    # A cell may close or redirect the standard streams: each gets them anew from these.
    requests = os.fdopen(os.dup(0), "rb")
    output = os.dup(1)
    answers = os.dup(ANSWERS)
    os.close(ANSWERS)
    null = os.open(os.devnull, os.O_RDONLY)

    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.argv = [""]
    # Isolated mode leaves out the working directory, from which a cell may well import what it wrote.
    sys.path.insert(0, "")
    driver = os.getpid()

    number = 0
    while True:
        header = requests.read(4)
        if len(header) < 4:
            return
        request = json.loads(requests.read(struct.unpack(">I", header)[0]))
        number += 1
        os.dup2(null, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdin = open(0, encoding="utf-8", closefd=False)
        sys.stdout = stream(1)
        sys.stderr = stream(2)
        run(request["code"], f"<cell {number}>", module.__dict__)
        # A child that the cell forked arrives here as well.
        if os.getpid() != driver:
            os._exit(0)
        os.write(answers, request["token"].encode())


def stream(descriptor):
    """Writes through, so that nothing is lost when the process is killed, and both streams keep their order."""
    raw = io.FileIO(descriptor, "w", closefd=False)
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)


def run(code, name, namespace):
    try:
        # Where tracebacks find the source.
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        try:
            cell = ast.parse(code, name)
        except (SyntaxError, ValueError) as error:
            write("".join(traceback.format_exception_only(type(error), error)))
            return
        last = cell.body.pop() if cell.body and isinstance(cell.body[-1], ast.Expr) else None
        exec(compile(cell, name, "exec"), namespace)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
            if value is not None:
                namespace["_"] = value
                write(f"{value!r}\n", sys.stdout)
    except SystemExit as error:
        if error.code not in (None, 0):
            write(f"SystemExit: {error.code}\n")
    except BaseException as error:
        # The first frame is this function.
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        write("".join(traceback.format_exception(type(error), error, error.__traceback__)))


def write(text, target=None):
    try:
        print(text, end="", file=target or sys.stderr)
    except Exception:
        # The cell replaced or closed its streams.
        os.write(2, text.encode("utf-8", "backslashreplace"))


if __name__ == "__main__":
    main()
