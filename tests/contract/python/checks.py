"""What the Python contract scripts share: running checks and saying which failed."""

import asyncio
import inspect
import os
import sys
import time
import traceback

HOST, PORT = os.environ["CONTRACT_ENDPOINT"].rsplit(":", 1)
PORT = int(PORT)

# How long a script waits for anything that must come.
PATIENCE = 30


def equal(got, want, what=""):
    assert got == want, f"{what}: got {got!r}, want {want!r}"


def refused(call, code, message):
    """Checks that a call ends with exactly this gRPC status."""
    import grpc

    try:
        answer = call()
    except grpc.RpcError as error:
        equal((error.code(), error.details()), (code, message))
        return
    raise AssertionError(f"answered {answer!r} instead of {code} {message!r}")


def until(what, condition):
    """Waits until a condition gives something true, and returns it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)


async def until_async(what, condition):
    deadline = time.monotonic() + PATIENCE
    while True:
        value = await condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        await asyncio.sleep(0.05)


def run(namespace):
    """Runs every function called `check_...` in the order of the script."""
    failed = 0
    checks = [(n, f) for n, f in namespace.items() if n.startswith("check_")]
    assert checks, "a script without checks checks nothing"
    for name, check in checks:
        started = time.monotonic()
        try:
            if inspect.iscoroutinefunction(check):
                asyncio.run(asyncio.wait_for(check(), 2 * PATIENCE))
            else:
                check()
            print(f"ok {name} ({time.monotonic() - started:.2f} s)", flush=True)
        except Exception:
            failed += 1
            print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
    print(f"{len(checks) - failed} of {len(checks)} checks passed", flush=True)
    # Not sys.exit: a client's watch thread must not keep the script alive.
    sys.stdout.flush()
    os._exit(1 if failed else 0)
