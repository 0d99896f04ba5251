"""The store as users of the Python library `aetcd` (asyncio) see it."""

import asyncio
import io

import aetcd
from aetcd import exceptions, rpc, rtypes

from checks import HOST, PORT, PATIENCE, equal, run, until_async


def connect(**options):
    return aetcd.Client(host=HOST, port=PORT, timeout=PATIENCE, **options)


async def fails(kind, words, call):
    """Checks that a call raises exactly this error of the library."""
    try:
        answer = await call
    except exceptions.ClientError as error:
        equal((type(error), str(error)), (kind, words))
        return
    raise AssertionError(f"answered {answer!r} instead of {kind.__name__}: {words}")


async def take(watch, count):
    events = watch.__aiter__()
    return [await asyncio.wait_for(events.__anext__(), PATIENCE) for _ in range(count)]


async def check_put_get_delete():
    async with connect() as client:
        put = await client.put(b"ak/a", b"1")
        first = put.header.revision
        equal(put.prev_kv, None)
        put = await client.put(b"ak/a", b"2", prev_kv=True)
        equal((put.prev_kv.value, put.prev_kv.mod_revision, put.header.revision), (b"1", first, first + 1))
        got = await client.get(b"ak/a", serializable=True)
        equal(
            (got.key, got.value, got.version, got.create_revision, got.mod_revision, got.lease),
            (b"ak/a", b"2", 2, first, first + 1, 0),
        )
        assert got.header.cluster_id and got.header.member_id and got.header.raft_term
        equal(await client.get(b"ak/nothing"), None)
        gone = await client.delete(b"ak/a", prev_kv=True)
        equal((gone.deleted, gone.prev_kv.value, gone.header.revision), (1, b"2", first + 2))
        gone = await client.delete(b"ak/a")
        equal(gone, None)
        for i in range(5):
            await client.put(b"ak/%d" % i, b"x" * i)
        gone = await client.delete_range(b"ak/1", b"ak/3", prev_kv=True)
        equal((gone.deleted, [kv.key for kv in gone]), (2, [b"ak/1", b"ak/2"]))
        gone = await client.delete_prefix(b"ak/")
        equal(gone.deleted, 3)


async def check_ranges():
    async with connect() as client:
        for key, value in [(b"ar/b", b"3"), (b"ar/a", b"2"), (b"ar/c", b"1"), (b"ar/b", b"0")]:
            await client.put(key, value)
        found = await client.get_prefix(b"ar/")
        equal(([kv.key for kv in found], found.count, found.more), ([b"ar/a", b"ar/b", b"ar/c"], 3, False))
        for target, order in {
            "key": [b"ar/c", b"ar/b", b"ar/a"],
            "value": [b"ar/a", b"ar/c", b"ar/b"],
            "create": [b"ar/c", b"ar/a", b"ar/b"],
            "mod": [b"ar/b", b"ar/c", b"ar/a"],
            "version": [b"ar/b", b"ar/a", b"ar/c"],
        }.items():
            found = await client.get_prefix(b"ar/", sort_order="descend", sort_target=target)
            equal([kv.key for kv in found], order, target)
        found = await client.get_prefix(b"ar/", keys_only=True)
        equal([kv.value for kv in found], [b"", b"", b""])
        found = await client.get_range(b"ar/b", b"ar/c")
        equal([kv.value for kv in found], [b"0"])
        found = await client.get_all()
        assert len(found) >= 3 and found.header.revision > 0


async def check_transactions():
    async with connect() as client:
        t = client.transactions
        await client.put(b"at/a", b"1")
        equal(await client.replace(b"at/a", b"1", b"2"), True)
        equal(await client.replace(b"at/a", b"1", b"3"), False)
        done, answers = await client.transaction(
            compare=[t.value(b"at/a") == b"2", t.version(b"at/a") > 1, t.create(b"at/b") == 0],
            success=[t.put(b"at/b", b"3"), t.get(b"at/b"), t.delete(b"at/a")],
            failure=[],
        )
        equal((done, answers[1][0][0], answers[2].response_delete_range.deleted), (True, b"3", 1))
        done, answers = await client.transaction(
            compare=[t.mod(b"at/b") < 1],
            success=[],
            failure=[t.txn(compare=[t.version(b"at/b") != 0], success=[t.get(b"at/b")], failure=[])],
        )
        inner = answers[0].response_txn
        equal((done, inner.succeeded, inner.responses[0].response_range.kvs[0].value), (False, True, b"3"))
        twice = [t.put(b"at/x", b"1"), t.put(b"at/x", b"2")]
        call = client.transaction(compare=[], success=twice, failure=[])
        await fails(exceptions.InvalidArgumentError, "etcdserver: duplicate key given in txn request", call)


async def check_concurrent_writers_lose_nothing():
    async with connect() as client:
        await client.put(b"count", b"0")

        async def increment():
            while True:
                now = await client.get(b"count")
                if await client.replace(b"count", now.value, b"%d" % (int(now.value) + 1)):
                    return

        await asyncio.gather(*(increment() for _ in range(20)))
        equal((await client.get(b"count")).value, b"20")


async def check_watch():
    async with connect() as client:
        watch = await client.watch_prefix(b"aw/", prev_kv=True)
        first = (await client.put(b"aw/a", b"1")).header.revision
        await client.put(b"aw/a", b"2")
        await client.delete(b"aw/a")
        got = await take(watch, 3)
        equal([e.kind for e in got], ["PUT", "PUT", "DELETE"])
        equal([e.kv.mod_revision for e in got], [first, first + 1, first + 2])
        equal([e.prev_kv.value for e in got], [b"", b"1", b"2"])
        await watch.cancel()
        watch = await client.watch_prefix(b"aw/", start_revision=first, kind=rtypes.EventKind.DELETE)
        equal([(e.kind, e.kv.mod_revision) for e in await take(watch, 1)], [("DELETE", first + 2)])
        await watch.cancel()
        watch = await client.watch_prefix(b"aw/", start_revision=first, kind=rtypes.EventKind.PUT)
        await client.put(b"aw/b", b"3")
        equal([e.kv.mod_revision for e in await take(watch, 3)], [first, first + 1, first + 3])
        await watch.cancel()
        once = asyncio.create_task(client.watch_once(b"aw/c", timeout=PATIENCE, start_revision=first))
        await client.put(b"aw/c", b"4")
        equal((await once).kv.value, b"4")
        try:
            await client.watch_once(b"aw/quiet", timeout=0.3)
            raise AssertionError("an event from nowhere")
        except exceptions.WatchTimeoutError:
            pass


async def check_watch_compacted():
    async with connect() as client:
        old = (await client.put(b"awc", b"1")).header.revision
        await client.put(b"awc", b"2")
        await client.compact(old + 1, physical=True)
        watch = await client.watch(b"awc", start_revision=old)
        try:
            await take(watch, 1)
            raise AssertionError("history that was compacted")
        except exceptions.RevisionCompactedError as error:
            equal(error.compacted_revision, old + 1)
        compacted = "etcdserver: mvcc: required revision has been compacted"
        await fails(exceptions.ClientError, compacted, client.compact(old))
        future = "etcdserver: mvcc: required revision is a future revision"
        await fails(exceptions.ClientError, future, client.compact(old + 100))


async def check_leases():
    async with connect() as client:
        lease = await client.lease(60)
        equal((lease.id > 0, await lease.granted_ttl()), (True, 60))
        await client.put(b"al/a", b"x", lease=lease)
        equal(list(await lease.keys()), [b"al/a"])
        equal((await client.get(b"al/a")).lease, lease.id)
        equal((await lease.refresh()).TTL, 60)
        await lease.revoke()
        equal(await client.get(b"al/a"), None)
        equal(await lease.remaining_ttl(), -1)
        own = await client.lease(60, lease_id=815)
        try:
            await client.lease(60, lease_id=815)
            raise AssertionError("two leases with one id")
        except exceptions.DuplicateLeaseError:
            pass
        await own.revoke()
        unknown = "etcdserver: requested lease not found"
        await fails(exceptions.ClientError, unknown, client.revoke_lease(815))
        await fails(exceptions.ClientError, unknown, client.put(b"al/b", b"x", lease=815))


async def check_keepalive_holds_and_its_end_expires():
    async with connect() as client:
        lease = await client.lease(2)
        await client.put(b"ae/a", b"x", lease=lease)
        for _ in range(8):
            await asyncio.sleep(0.5)
            equal((await lease.refresh()).TTL, 2)
        equal((await client.get(b"ae/a")).value, b"x", "kept alive for twice its time")
        watch = await client.watch(b"ae/a")
        equal([e.kind for e in await take(watch, 1)], ["DELETE"])

        async def gone():
            return await lease.remaining_ttl() == -1

        await until_async("the lease to be gone", gone)


async def check_locks():
    async with connect() as client, connect() as other:
        first, second = client.lock(b"lock/a", ttl=20), other.lock(b"lock/a", ttl=20)
        equal(await first.acquire(timeout=5), True)
        equal(await second.acquire(timeout=0.5), False)
        equal((await first.is_acquired(), await second.is_acquired()), (True, False))
        waiting = asyncio.create_task(second.acquire(timeout=PATIENCE))
        equal((await first.refresh()).TTL, 20)
        equal(await first.release(), True)
        equal(await waiting, True, "a release wakes who waits")
        equal((await first.is_acquired(), await second.is_acquired()), (False, True))
        equal(await second.release(), True)
        # A holder that dies frees the lock when its lease ends.
        short = client.lock(b"lock/b", ttl=1)
        equal(await short.acquire(), True)
        heir = other.lock(b"lock/b", ttl=20)
        equal(await heir.acquire(timeout=PATIENCE), True)
        equal(await heir.release(), True)


async def check_errors():
    async with connect() as client:
        invalid = exceptions.InvalidArgumentError
        await fails(invalid, "etcdserver: key is not provided", client.put(b"", b"x"))
        await fails(invalid, "etcdserver: key is not provided", client.get(b""))
        await fails(invalid, "etcdserver: request is too large", client.put(b"a", b"x" * 1_600_000))
        await fails(exceptions.ClientError, "etcdserver: too large lease TTL", client.lease(9_000_000_001))
        await fails(exceptions.ClientError, "etcdserver: member not found", client.remove_member(7))


async def check_cluster_and_maintenance():
    async with connect() as client:
        (member,) = [m async for m in client.members()]
        assert member.id and member.name and list(member.client_urls)
        status = await client.status()
        equal(status.leader.id, member.id)
        assert status.db_size > 0 and status.raft_index > 0
        await client.defragment()
        equal(await client.hash(), await client.hash())
        equal([a async for a in client.list_alarms()], [])
        (alarm,) = await client.create_alarm()
        equal(alarm.alarm_type, rpc.NOSPACE)
        await fails(exceptions.ClientError, "etcdserver: mvcc: database space exceeded", client.put(b"a", b"x"))
        await client.disarm_alarm()
        await client.put(b"a", b"x")


async def check_snapshot():
    async with connect() as client:
        await client.put(b"snapshot", b"in it")
        file = io.BytesIO()
        await client.snapshot(file)
        equal(len(file.getvalue()) % 512, 32)
        assert b"in it" in file.getvalue()


async def check_auth():
    async with connect() as client:
        auth = rpc.AuthStub(client.channel)
        await auth.UserAdd(rpc.AuthUserAddRequest(name="root", password="pw"))
        await auth.UserAdd(rpc.AuthUserAddRequest(name="bo", password="pw"))
        await auth.RoleAdd(rpc.AuthRoleAddRequest(name="root"))
        await auth.RoleAdd(rpc.AuthRoleAddRequest(name="r"))
        permission = rpc.Permission(permType=rpc.Permission.READWRITE, key=b"au/", range_end=b"au0")
        await auth.RoleGrantPermission(rpc.AuthRoleGrantPermissionRequest(name="r", perm=permission))
        await auth.UserGrantRole(rpc.AuthUserGrantRoleRequest(user="root", role="root"))
        await auth.UserGrantRole(rpc.AuthUserGrantRoleRequest(user="bo", role="r"))
        await auth.AuthEnable(rpc.AuthEnableRequest())
        async with connect(username="root", password="pw") as root:
            try:
                await as_user(client, root)
            finally:
                await rpc.AuthStub(root.channel).AuthDisable(rpc.AuthDisableRequest(), metadata=root.metadata)


async def as_user(nobody, root):
    empty = "etcdserver: user name is empty"
    await fails(exceptions.InvalidArgumentError, empty, nobody.get(b"au/a"))
    wrong = "etcdserver: authentication failed, invalid user ID or password"
    await fails(exceptions.InvalidArgumentError, wrong, connect(username="bo", password="no").connect())
    async with connect(username="bo", password="pw") as bo:
        watch = await bo.watch_prefix(b"au/")
        await bo.put(b"au/a", b"1")
        equal([e.kv.value for e in await take(watch, 1)], [b"1"])
        denied = "etcdserver: permission denied"
        await fails(exceptions.ClientError, denied, bo.put(b"other", b"x"))
        await fails(exceptions.ClientError, denied, bo.get_prefix(b"a"))
        lease = await bo.lease(60)
        await bo.put(b"au/b", b"x", lease=lease)
        await root.put(b"secret", b"x", lease=lease.id)
        await fails(exceptions.ClientError, denied, lease.revoke())
        await root.revoke_lease(lease.id)
        bo.metadata = (("token", "stale.7"),)
        await fails(exceptions.UnauthenticatedError, "etcdserver: invalid auth token", bo.get(b"au/a"))


if __name__ == "__main__":
    run(dict(globals()))
