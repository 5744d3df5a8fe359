#!/usr/bin/env python3
"""A service manager for tests, where there is no systemd as process 1: holds a listening socket and starts a node with it.

    stand-in.py ADDRESS PORT NAME FIFO LOG COMMAND...

It reads words from FIFO: start, stop (SIGTERM, and waits for the end), end. The node gets the socket as LISTEN_FDS with its NAME, and
NOTIFY_SOCKET and WATCHDOG_USEC. LOG gets a line for each assignment that the node sends, and `exited CODE`. The socket stays while no
node runs, as with terrace.socket.
"""

import os
import signal
import socket
import sys
import threading


def main(address, port, name, fifo, log, command):
    listener = socket.create_server((address, int(port)), backlog=128)
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind("\0terrace-test-%d" % os.getpid())
    out = open(log, "a", encoding="utf-8", buffering=1)

    def hear():
        while True:
            for line in notify.recv(65536).decode().splitlines():
                out.write(line + "\n")

    threading.Thread(target=hear, daemon=True).start()

    def start():
        pid = os.fork()
        if pid:
            return pid
        os.dup2(listener.fileno(), 3)
        os.set_inheritable(3, True)
        own = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", "LISTEN_FDNAMES": name}
        own |= {"NOTIFY_SOCKET": "@terrace-test-%d" % os.getppid(), "WATCHDOG_USEC": "2000000"}
        os.execvpe(command[0], command, os.environ | own)

    def stop(pid):
        os.kill(pid, signal.SIGTERM)
        _, status = os.waitpid(pid, 0)
        out.write("exited %d\n" % os.waitstatus_to_exitcode(status))

    pid = None
    while True:
        with open(fifo, encoding="utf-8") as words:
            for word in words.read().split():
                if word == "start":
                    pid = start()
                elif pid:
                    stop(pid)
                    pid = None
                if word == "end":
                    return


if __name__ == "__main__":
    if len(sys.argv) < 7:
        sys.exit(__doc__)
    main(*sys.argv[1:6], sys.argv[6:])
