"""The store as users of the Python library `etcd3` see it."""

import hashlib
import io
import os
import queue

import etcd3
import etcd3.etcdrpc as rpc
import grpc

from checks import HOST, PORT, PATIENCE, equal, refused, run, until

Code = grpc.StatusCode
COMPACTED = "etcdserver: mvcc: required revision has been compacted"
FUTURE = "etcdserver: mvcc: required revision is a future revision"


# With these, everything goes over TLS and the client shows a certificate.
CA, CERT, KEY = (os.environ.get(f"CONTRACT_{name}") for name in ("CA", "CERT", "KEY"))


def connect(**options):
    made = etcd3.client(host=HOST, port=PORT, timeout=PATIENCE, ca_cert=CA, cert_cert=CERT, cert_key=KEY, **options)
    if not CA:
        # gRPC sends call credentials over TLS only; the metadata has the token too.
        made.call_credentials = made.watcher._credentials = None
    return made


client = connect()


def revision():
    return client.get_response("no such key").header.revision


def check_put_and_get():
    before = revision()
    answer = client.put("kv/a", "1")
    equal(answer.header.revision, before + 1)
    assert not answer.HasField("prev_kv")
    value, meta = client.get("kv/a")
    equal(value, b"1")
    equal(
        (meta.key, meta.version, meta.create_revision, meta.mod_revision, meta.lease_id),
        (b"kv/a", 1, before + 1, before + 1, 0),
    )
    answer = client.put("kv/a", "2", prev_kv=True)
    equal((answer.prev_kv.value, answer.prev_kv.mod_revision), (b"1", before + 1))
    value, meta = client.get("kv/a", serializable=True)
    equal((value, meta.version, meta.create_revision, meta.mod_revision), (b"2", 2, before + 1, before + 2))
    equal(client.get("kv/nothing"), (None, None))
    binary = bytes(range(256))
    client.put(b"kv/\x00\xff", binary)
    equal(client.get(b"kv/\x00\xff")[0], binary)
    client.put("kv/empty", "")
    equal(client.get("kv/empty")[0], b"")
    large = b"x" * 1_000_000
    client.put("kv/large", large)
    equal(client.get("kv/large")[0], large)


def check_prefix_range_and_order():
    for key, value in [("o/b", "3"), ("o/a", "2"), ("o/c", "1"), ("p", "other")]:
        client.put(key, value)
    client.put("o/b", "0")

    def keys(found):
        return [meta.key for _, meta in found]

    equal(keys(client.get_prefix("o/")), [b"o/a", b"o/b", b"o/c"])
    equal(keys(client.get_prefix("o/", sort_order="descend")), [b"o/c", b"o/b", b"o/a"])
    by = {
        "key": [b"o/a", b"o/b", b"o/c"],
        "value": [b"o/b", b"o/c", b"o/a"],
        "version": [b"o/a", b"o/c", b"o/b"],
        "create": [b"o/b", b"o/a", b"o/c"],
        "mod": [b"o/a", b"o/c", b"o/b"],
    }
    for target, order in by.items():
        equal(keys(client.get_prefix("o/", sort_order="ascend", sort_target=target)), order, target)
        # Backwards, except where two keys are equal: those keep their order.
        backwards = [b"o/b", b"o/a", b"o/c"] if target == "version" else order[::-1]
        equal(keys(client.get_prefix("o/", sort_order="descend", sort_target=target)), backwards, target)
    equal(keys(client.get_range("o/a", "o/c")), [b"o/a", b"o/b"])
    everything = keys(client.get_all())
    assert b"o/a" in everything and b"p" in everything
    equal(everything, sorted(everything))
    only = client.get_prefix_response("o/", keys_only=True)
    equal([(kv.key, kv.value) for kv in only.kvs], [(b"o/a", b""), (b"o/b", b""), (b"o/c", b"")])
    equal((only.count, only.more), (3, False))


def check_what_the_stub_can_ask():
    first = revision()
    for key in "abcde":
        client.put("r/" + key, key)
    end = dict(key=b"r/", range_end=b"r0")
    ask = lambda **more: client.kvstub.Range(rpc.RangeRequest(**end, **more))
    answer = ask(limit=2)
    equal(([kv.key for kv in answer.kvs], answer.more, answer.count), ([b"r/a", b"r/b"], True, 5))
    answer = ask(count_only=True)
    equal((len(answer.kvs), answer.count), (0, 5))
    answer = ask(min_mod_revision=first + 2, max_mod_revision=first + 4)
    equal([kv.key for kv in answer.kvs], [b"r/b", b"r/c", b"r/d"])
    answer = ask(min_create_revision=first + 4)
    equal([kv.key for kv in answer.kvs], [b"r/d", b"r/e"])
    answer = ask(revision=first + 2)
    equal(([kv.key for kv in answer.kvs], answer.header.revision), ([b"r/a", b"r/b"], first + 5))
    answer = client.kvstub.Range(rpc.RangeRequest(key=b"r/d", range_end=b"\0", limit=2))
    equal([kv.key for kv in answer.kvs], [b"r/d", b"r/e"])


def check_deletes():
    for key in ("d/a", "d/b", "d/c"):
        client.put(key, "x")
    equal(client.delete("d/a"), True)
    before = revision()
    equal(client.delete("d/a"), False)
    equal(revision(), before, "a delete of nothing is no revision")
    gone = client.delete("d/b", prev_kv=True, return_response=True)
    equal((gone.deleted, gone.prev_kvs[0].value, gone.header.revision), (1, b"x", before + 1))
    client.put("d/d", "x")
    equal(client.delete_prefix("d/").deleted, 2)
    equal(list(client.get_prefix("d/")), [])


def check_conditional_puts():
    equal(client.put_if_not_exists("c/a", "1"), True)
    equal(client.put_if_not_exists("c/a", "2"), False)
    equal(client.replace("c/a", "1", "3"), True)
    equal(client.replace("c/a", "1", "4"), False)
    equal(client.get("c/a")[0], b"3")


def check_transactions():
    t = client.transactions
    client.delete_prefix("t/")
    client.put("t/a", "1")
    done, answers = client.transaction(
        compare=[t.value("t/a") == "1", t.version("t/a") > 0, t.version("t/a") < 2, t.create("t/b") == 0],
        success=[t.put("t/b", "2"), t.get("t/b"), t.delete("t/a", prev_kv=True)],
        failure=[t.put("t/b", "no")],
    )
    equal(done, True)
    equal(answers[1][0][0], b"2", "a read sees the writes before it")
    equal(answers[2].response_delete_range.prev_kvs[0].value, b"1")
    meta = client.get("t/b")[1]
    equal(answers[0].response_put.header.revision, meta.mod_revision)
    done, answers = client.transaction(
        compare=[t.mod("t/b") != meta.mod_revision], success=[], failure=[t.get("t/b"), t.get("t/none")]
    )
    equal((done, answers[0][0][0], answers[1]), (False, b"2", []))
    # A value of a key that is not there equals nothing, and differs from nothing.
    equal(client.transaction(compare=[t.value("t/a") != "1"], success=[], failure=[])[0], False)
    done, answers = client.transaction(
        compare=[t.version("t/b") == 1],
        success=[
            t.put("t/outer", "o"),
            t.txn(
                compare=[t.version("t/outer") == 0],
                success=[t.put("t/inner", "i"), t.get("t/outer")],
                failure=[],
            ),
        ],
        failure=[],
    )
    inner = answers[1].response_txn
    equal((done, inner.succeeded), (True, True), "paths are chosen before anything is done")
    equal(inner.responses[1].response_range.kvs[0].value, b"o")
    put = lambda key: rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=b"x"))
    many = lambda ops: client.kvstub.Txn(rpc.TxnRequest(success=ops))
    refused(lambda: many([put(b"t/x"), put(b"t/x")]), Code.INVALID_ARGUMENT, "etcdserver: duplicate key given in txn request")
    refused(
        lambda: many([put(b"k%d" % i) for i in range(129)]),
        Code.INVALID_ARGUMENT,
        "etcdserver: too many operations in txn request",
    )
    refused(lambda: many([rpc.RequestOp()]), Code.INVALID_ARGUMENT, "etcdserver: key not found")


def check_errors():
    refused(lambda: client.put("", "x"), Code.INVALID_ARGUMENT, "etcdserver: key is not provided")
    refused(lambda: client.get(""), Code.INVALID_ARGUMENT, "etcdserver: key is not provided")
    refused(lambda: client.put("e", "x", lease=12345), Code.NOT_FOUND, "etcdserver: requested lease not found")
    refused(lambda: client.put("e", b"x" * 1_600_000), Code.INVALID_ARGUMENT, "etcdserver: request is too large")
    put = lambda **more: client.kvstub.Put(rpc.PutRequest(key=b"e/missing", **more))
    refused(lambda: put(ignore_value=True), Code.INVALID_ARGUMENT, "etcdserver: key not found")
    refused(lambda: put(ignore_lease=True, value=b"x"), Code.INVALID_ARGUMENT, "etcdserver: key not found")
    refused(lambda: put(ignore_value=True, value=b"x"), Code.INVALID_ARGUMENT, "etcdserver: value is provided")
    refused(lambda: put(ignore_lease=True, lease=3), Code.INVALID_ARGUMENT, "etcdserver: lease is provided")
    ask = lambda **more: client.kvstub.Range(rpc.RangeRequest(key=b"e", **more))
    refused(lambda: ask(revision=revision() + 1), Code.OUT_OF_RANGE, FUTURE)


def take(events, count):
    """Takes events from an iterator that blocks; a deadline comes with the client."""
    return [next(events) for _ in range(count)]


def check_watch():
    client.put("w/before", "0")
    first = revision() + 1
    events, cancel = client.watch_prefix("w/", prev_kv=True)
    client.put("w/a", "1")
    client.put("w/a", "2")
    client.delete("w/a")
    client.put("other", "x")
    client.put("w/b", "3")
    got = take(events, 4)
    equal([type(e).__name__ for e in got], ["PutEvent", "PutEvent", "DeleteEvent", "PutEvent"])
    equal([e.key for e in got], [b"w/a", b"w/a", b"w/a", b"w/b"])
    equal([e.value for e in got], [b"1", b"2", b"", b"3"])
    equal([e.mod_revision for e in got], [first, first + 1, first + 2, first + 4])
    equal([e.version for e in got], [1, 2, 0, 1])
    equal([e.create_revision for e in got], [first, first, 0, first + 4])
    equal([e.prev_value for e in got], [b"", b"1", b"2", b""])
    cancel()
    # From the past, one response for each revision at the most, nothing twice.
    events, cancel = client.watch_prefix("w/", start_revision=first)
    equal([e.mod_revision for e in take(events, 4)], [first, first + 1, first + 2, first + 4])
    client.put("w/c", "4")
    equal(next(events).key, b"w/c")
    cancel()
    # All events of one revision come in one response.
    responses, cancel = client.watch_prefix_response("w/")
    t = client.transactions
    client.transaction(compare=[], success=[t.put("w/x", "1"), t.put("w/y", "2"), t.put("w/z", "3")], failure=[])
    response = next(responses)
    equal([e.key for e in response.events], [b"w/x", b"w/y", b"w/z"])
    equal(response.header.revision, response.events[0].mod_revision)
    cancel()


def check_watch_callbacks_share_a_stream():
    got = queue.Queue()
    ids = [client.add_watch_callback(f"cb/{i}", got.put) for i in range(10)]
    equal(len(set(ids)), 10)
    for i in range(10):
        client.put(f"cb/{i}", str(i))
    keys = sorted(got.get(timeout=PATIENCE).events[0].key for _ in range(10))
    equal(keys, sorted(f"cb/{i}".encode() for i in range(10)))
    for watch_id in ids[:9]:
        client.cancel_watch(watch_id)
    for i in range(10):
        client.put(f"cb/{i}", "again")
    equal(got.get(timeout=PATIENCE).events[0].key, b"cb/9")
    client.cancel_watch(ids[9])
    try:
        client.watch_once("cb/quiet", timeout=0.3)
        raise AssertionError("an event from nowhere")
    except etcd3.exceptions.WatchTimedOut:
        pass


def check_watch_compacted():
    client.put("wc", "1")
    old = client.get("wc")[1].mod_revision
    client.put("wc", "2")
    client.put("wc", "3")
    client.compact(old + 2, physical=True)
    fresh = connect()
    events, cancel = fresh.watch("wc", start_revision=old)
    try:
        next(events)
        raise AssertionError("history that was compacted")
    except etcd3.exceptions.RevisionCompactedError as error:
        equal(error.compacted_revision, old + 2)
    # The compacted revision itself can still be watched and read.
    events, cancel = fresh.watch("wc", start_revision=old + 2)
    equal(next(events).value, b"3")
    cancel()
    ask = lambda at: client.kvstub.Range(rpc.RangeRequest(key=b"wc", revision=at))
    equal(ask(old + 2).kvs[0].value, b"3")
    refused(lambda: ask(old + 1), Code.OUT_OF_RANGE, COMPACTED)
    refused(lambda: client.compact(old + 2), Code.OUT_OF_RANGE, COMPACTED)
    refused(lambda: client.compact(old + 1000), Code.OUT_OF_RANGE, FUTURE)


def check_leases():
    lease = client.lease(60)
    assert lease.id > 0
    equal(lease.granted_ttl, 60)
    assert 55 <= lease.remaining_ttl <= 60
    client.put("l/a", "x", lease=lease)
    client.put("l/b", "x", lease=lease.id)
    equal(sorted(lease.keys), [b"l/a", b"l/b"])
    equal(client.get("l/a")[1].lease_id, lease.id)
    client.put("l/b", "free")
    equal(lease.keys, [b"l/a"], "a put without a lease takes the key from it")
    (alive,) = lease.refresh()
    equal((alive.ID, alive.TTL), (lease.id, 60))
    lease.revoke()
    equal(client.get("l/a")[0], None)
    equal(client.get("l/b")[0], b"free")
    equal(client.get_lease_info(lease.id).TTL, -1)
    (gone,) = client.refresh_lease(lease.id)
    equal((gone.ID, gone.TTL), (lease.id, 0))
    refused(lambda: client.revoke_lease(lease.id), Code.NOT_FOUND, "etcdserver: requested lease not found")
    own = client.lease(60, lease_id=4711)
    equal(own.id, 4711)
    try:
        client.lease(60, lease_id=4711)
        raise AssertionError("two leases with one id")
    except etcd3.exceptions.PreconditionFailedError:
        pass
    ids = [lease.ID for lease in client.leasestub.LeaseLeases(rpc.LeaseLeasesRequest()).leases]
    assert 4711 in ids and lease.id not in ids, ids
    own.revoke()
    refused(lambda: client.lease(9_000_000_001), Code.OUT_OF_RANGE, "etcdserver: too large lease TTL")


def check_lease_expiry():
    events, cancel = client.watch("le/a", prev_kv=True)
    lease = client.lease(1)
    client.put("le/a", "x", lease=lease)
    put, gone = take(events, 2)
    equal((type(put).__name__, type(gone).__name__), ("PutEvent", "DeleteEvent"))
    equal(gone.prev_value, b"x")
    equal(client.get("le/a")[0], None)
    cancel()
    until("the lease to be gone", lambda: client.get_lease_info(lease.id).TTL == -1)


def check_locks():
    # The library's waiting for a held lock fails with every tenacity it can be
    # installed with, so a second holder comes only after the first.
    first, second = client.lock("contract", ttl=20), connect().lock("contract", ttl=20)
    equal(first.acquire(timeout=5), True)
    equal((first.is_acquired(), second.is_acquired()), (True, False))
    (alive,) = first.refresh()
    equal(alive.TTL, 20)
    equal(first.release(), True)
    equal(second.acquire(timeout=5), True)
    equal(first.release(), False, "a lock that was lost cannot be released")
    equal(second.release(), True)
    with client.lock("contract", ttl=20) as held:
        equal(held.is_acquired(), True)


def check_cluster_and_maintenance():
    (member,) = list(client.members)
    assert member.id and member.name and list(member.client_urls) and list(member.peer_urls)
    equal(list(member.active_alarms), [])
    status = client.status()
    equal(status.leader.id, member.id)
    major, minor = map(int, status.version.split(".")[:2])
    assert (major, minor) >= (3, 4), status.version
    assert status.db_size > 0 and status.raft_index > 0 and status.raft_term > 0
    client.defragment()
    one, two = client.hash(), client.hash()
    equal(one, two)
    client.put("hash", "changes it")
    assert client.hash() != one
    refused(lambda: client.remove_member(7), Code.NOT_FOUND, "etcdserver: member not found")


def check_alarms():
    equal(list(client.list_alarms()), [])
    (raised,) = client.create_alarm()
    equal(raised.alarm_type, rpc.NOSPACE)
    equal([a.alarm_type for a in client.list_alarms()], [rpc.NOSPACE])
    full = "etcdserver: mvcc: database space exceeded"
    refused(lambda: client.put("alarm", "x"), Code.RESOURCE_EXHAUSTED, full)
    refused(lambda: client.lease(60), Code.RESOURCE_EXHAUSTED, full)
    client.delete("alarm")
    client.get("alarm")
    client.disarm_alarm()
    equal(list(client.list_alarms()), [])
    client.put("alarm", "x")


def check_snapshot():
    client.put("snapshot", "in it")
    file = io.BytesIO()
    client.snapshot(file)
    data = file.getvalue()
    # A bbolt file (its magic stands behind the page header) and a SHA-256 behind it.
    equal(data[16:20], (0xED0CDAED).to_bytes(4, "little"))
    equal(len(data) % 512, 32)
    equal(hashlib.sha256(data[:-32]).digest(), data[-32:])
    assert b"in it" in data


def check_auth():
    auth = rpc.AuthStub(client.channel)
    refused(lambda: auth.AuthEnable(rpc.AuthEnableRequest()), Code.FAILED_PRECONDITION, "etcdserver: root user does not exist")
    auth.UserAdd(rpc.AuthUserAddRequest(name="root", password="rootpw"))
    auth.UserAdd(rpc.AuthUserAddRequest(name="al", password="alpw"))
    auth.RoleAdd(rpc.AuthRoleAddRequest(name="root"))
    auth.UserGrantRole(rpc.AuthUserGrantRoleRequest(user="root", role="root"))
    auth.RoleAdd(rpc.AuthRoleAddRequest(name="reader"))
    grant = lambda *what: auth.RoleGrantPermission(permission(*what))
    grant(0, b"pub/", b"pub0")
    grant(2, b"own/", b"own0")
    auth.UserGrantRole(rpc.AuthUserGrantRoleRequest(user="al", role="reader"))
    client.put("pub/a", "1")
    client.put("secret", "1")
    auth.AuthEnable(rpc.AuthEnableRequest())
    root = connect(user="root", password="rootpw")
    try:
        as_user(root)
    finally:
        rpc.AuthStub(root.channel).AuthDisable(rpc.AuthDisableRequest(), metadata=root.metadata)
    client.put("secret", "open again")
    auth.UserDelete(rpc.AuthUserDeleteRequest(name="al"))
    auth.UserDelete(rpc.AuthUserDeleteRequest(name="root"))
    auth.RoleDelete(rpc.AuthRoleDeleteRequest(role="reader"))
    auth.RoleDelete(rpc.AuthRoleDeleteRequest(role="root"))
    equal(list(auth.UserList(rpc.AuthUserListRequest()).users), [])


def permission(kind, key, end):
    request = rpc.AuthRoleGrantPermissionRequest(name="reader")
    request.perm.permType = kind
    request.perm.key = key
    request.perm.range_end = end
    return request


def as_user(root):
    wrong = "etcdserver: authentication failed, invalid user ID or password"
    refused(lambda: connect(user="al", password="no"), Code.INVALID_ARGUMENT, wrong)
    refused(lambda: connect(user="nobody", password="no"), Code.INVALID_ARGUMENT, wrong)
    if CERT:
        # Who shows the certificate of "al" is "al", without a token.
        equal(client.get("pub/a")[0], b"1")
        refused(lambda: client.get("secret"), Code.PERMISSION_DENIED, "etcdserver: permission denied")
    else:
        refused(lambda: client.get("pub/a"), Code.INVALID_ARGUMENT, "etcdserver: user name is empty")
    token = (("token", "invented.1"),)
    refused(
        lambda: client.kvstub.Range(rpc.RangeRequest(key=b"pub/a"), metadata=token),
        Code.UNAUTHENTICATED,
        "etcdserver: invalid auth token",
    )
    al = connect(user="al", password="alpw")
    denied = lambda call: refused(call, Code.PERMISSION_DENIED, "etcdserver: permission denied")
    equal(al.get("pub/a")[0], b"1")
    al.put("own/a", "mine")
    equal(al.get("own/a")[0], b"mine")
    denied(lambda: al.put("pub/a", "2"))
    denied(lambda: al.get("secret"))
    denied(lambda: list(al.get_all()))
    denied(lambda: al.delete_prefix("pub/"))
    t = al.transactions
    denied(lambda: al.transaction(compare=[t.value("secret") == "1"], success=[], failure=[]))
    denied(lambda: al.transaction(compare=[], success=[t.put("own/b", "x"), t.put("secret", "x")], failure=[]))
    try:
        al.defragment()
        raise AssertionError("a user who is not root defragments")
    except grpc.RpcError as error:
        # The code and the prefix differ between versions of etcd.
        assert error.details().endswith("permission denied"), error.details()
    events, cancel = al.watch_prefix("pub/")
    root.put("pub/b", "seen")
    equal(next(events).value, b"seen")
    cancel()
    equal(root.get("secret")[0], b"1")


if __name__ == "__main__":
    run(dict(globals()))
