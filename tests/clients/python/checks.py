"""What the Python scripts share: running checks and saying which failed."""

import os
import sys
import time
import traceback

# How long a script waits for anything that must come, in seconds.
PATIENCE = 60


def equal(got, want, what=""):
    assert got == want, f"{what}: got {got!r}, want {want!r}"


def until(what, condition):
    """Waits until a condition gives something true, and returns it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)


def refused(call, code, words=""):
    """Checks that a call ends with this HTTP status and a message with these words."""
    from kubernetes.client.exceptions import ApiException

    try:
        answer = call()
    except ApiException as error:
        equal(error.status, code, error.body)
        body = error.body.decode() if isinstance(error.body, bytes) else error.body
        assert words in body, body
        return
    raise AssertionError(f"answered {answer!r} instead of {code}")


def run(namespace):
    """Runs every function called `check_...` in the order of the script."""
    failed = 0
    checks = [(n, f) for n, f in namespace.items() if n.startswith("check_")]
    assert checks, "a script without checks checks nothing"
    for name, check in checks:
        started = time.monotonic()
        try:
            check()
            print(f"ok {name} ({time.monotonic() - started:.2f} s)", flush=True)
        except Exception:
            failed += 1
            print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
    print(f"{len(checks) - failed} of {len(checks)} checks passed", flush=True)
    sys.stdout.flush()
    # Not sys.exit: a client's watch thread must not keep the script alive.
    os._exit(1 if failed else 0)
