#!/usr/bin/env bash
# The store as people and scripts that use etcdctl see it. ETCDCTL is the
# program, 3.4 or 3.5; CONTRACT_ENDPOINT is the store, fresh and their own.
set -euo pipefail

scratch=$(mktemp -d)
background=()
trap 'for pid in "${background[@]:-}"; do kill "$pid" 2>/dev/null || true; done; rm -rf "$scratch"' EXIT
export ETCDCTL_API=3
version=$("$ETCDCTL" version | sed -n 's/^etcdctl version: //p')
user=()

flags=(--endpoints="$CONTRACT_ENDPOINT" --dial-timeout=20s --command-timeout=30s)

e() { "$ETCDCTL" "${flags[@]}" "${user[@]}" "$@"; }

# spawn FILE ARGS...: etcdctl in the background, writing to a file; $! is its pid.
spawn() {
    local file=$1
    shift
    "$ETCDCTL" "${flags[@]}" "${user[@]}" "$@" <&0 >"$file" 2>&1 &
    background+=($!)
}

failure() {
    echo "FAILED at line ${BASH_LINENO[0]} or ${BASH_LINENO[1]}: $*" >&2
    exit 1
}

# is WANT ARGS...: etcdctl succeeds and prints exactly this (\n for newlines).
is() {
    local want got
    want=$(printf '%b' "$1")
    shift
    got=$(e "$@" 2>"$scratch/stderr") || failure "etcdctl $*: $(cat "$scratch/stderr")"
    [ "$got" = "$want" ] || failure "etcdctl $*: got <$got>, want <$want>"
}

# has WORDS ARGS...: etcdctl succeeds and prints this somewhere.
has() {
    local want=$1 got
    shift
    got=$(e "$@" 2>&1) || failure "etcdctl $*: $got"
    [[ $got == *"$want"* ]] || failure "etcdctl $*: got <$got>, want <$want> in it"
}

# fails WORDS ARGS...: etcdctl fails and says this.
fails() {
    local want=$1 got
    shift
    if got=$(e "$@" 2>&1); then failure "etcdctl $* succeeded: $got"; fi
    [[ $got == *"$want"* ]] || failure "etcdctl $*: got <$got>, want <$want> in it"
}

# shows WORDS FILE: waits until a background command has written this.
shows() {
    for _ in $(seq 300); do
        grep -qF -- "$1" "$2" && return 0
        sleep 0.1
    done
    failure "waited for <$1> in: $(cat "$2")"
}

# field NAME ARGS...: a number of the reply, as --write-out=fields gives it.
field() {
    local name=$1
    shift
    e "$@" --write-out=fields | sed -n "s/^\"$name\" : //p" | head -n 1
}

revision() { field Revision get no-such-key; }

keys_and_values() {
    is "OK" put c/a 1
    is "OK\nc/a\n1" put c/a 2 --prev-kv
    is "OK" put c/a --ignore-lease 3
    is "OK" put c/a --ignore-value
    is "c/a\n3" get c/a
    is "3" get c/a --print-value-only
    is "" get c/nothing
    for key in b c d; do is "OK" put "c/$key" "$key"; done
    is "c/a\n3\nc/b\nb\nc/c\nc\nc/d\nd" get c/ --prefix
    is "c/b\nb" get c/b c/c
    is "c/d\nd\nc/c\nc" get c/ --prefix --order=DESCEND --limit=2
    is "c/d\n\nc/c\n\nc/b\n\nc/a" get c/ --prefix --keys-only --sort-by=CREATE --order=DESCEND
    is "c/c\nc\nc/d\nd" get c/c --from-key --limit=2
    [ "$(field Count get c/ --prefix)" = 4 ] || failure "count"
    [ "$(field More get c/ --prefix --limit=1)" = true ] || failure "more"
    local now
    now=$(revision)
    is "OK" put c/a later
    is "c/a\n3" get c/a --rev="$now"
    is "c/a\nlater" get c/a --consistency=s
    is "1" del c/b
    is "0" del c/b
    is "1\nc/a\nlater" del c/a --prev-kv
    is "2" del c/ --prefix
    printf 'from stdin' | e put c/stdin >"$scratch/out"
    is "c/stdin\nfrom stdin" get c/stdin
    has '"value":"ZnJvbSBzdGRpbg=="' get c/stdin -w json
    has '\x63\x2f\x73' get c/stdin --hex
    fails "etcdserver: key is not provided" put "" x
    fails "etcdserver: mvcc: required revision is a future revision" get c/a --rev=99999
    fails "etcdserver: requested lease not found" put c/a x --lease=123
    fails "etcdserver: key not found" put c/none --ignore-value
    head -c 1600000 /dev/zero | tr '\0' x >"$scratch/large"
    if e put c/large <"$scratch/large" 2>"$scratch/stderr"; then failure "a put that is too large"; fi
    grep -q "etcdserver: request is too large" "$scratch/stderr" || failure "$(cat "$scratch/stderr")"
}

transactions() {
    is "OK" put t/a 1
    local got
    got=$(printf 'value("t/a") = "1"\nversion("t/a") > "0"\ncreate("t/b") = "0"\n\nput t/b 2\nget t/b\ndel t/a\n\nput t/b no\n\n' | e txn -i=false)
    [ "$got" = $'SUCCESS\n\nOK\n\nt/b\n2\n\n1' ] || failure "txn: <$got>"
    got=$(printf 'mod("t/b") = "1"\n\n\nget t/b\nget t/none\n\n' | e txn -i=false)
    [ "$got" = $'FAILURE\n\nt/b\n2\n\n' ] || [ "$got" = $'FAILURE\n\nt/b\n2' ] || failure "txn: <$got>"
    if got=$(printf '\nput t/x 1\nput t/x 2\n\n\n' | e txn -i=false 2>&1); then failure "a key put twice"; fi
    [[ $got == *"etcdserver: duplicate key given in txn request"* ]] || failure "$got"
    if got=$( (echo; for i in $(seq 129); do echo "put t/$i x"; done; echo; echo) | e txn -i=false 2>&1); then failure "129 operations"; fi
    [[ $got == *"etcdserver: too many operations in txn request"* ]] || failure "$got"
    is "" get t/x
}

watches() {
    local first=$(($(revision) + 1))
    spawn "$scratch/watch" watch w/ --prefix --prev-kv
    # The watch is there once it shows a put; keys of their own do not disturb what follows.
    for _ in $(seq 300); do
        is "OK" put w/ready x
        grep -q ready "$scratch/watch" && break
        sleep 0.1
    done
    first=$(($(revision) + 1))
    is "OK" put w/a 1
    is "OK" put w/a 2
    is "1" del w/a
    is "OK" put other x
    is "OK" put w/end x
    shows w/end "$scratch/watch"
    got=$(grep -v ready "$scratch/watch" | sed -n '/^w\/a$/,$p' | tr '\n' ' ')
    want="w/a 1 PUT w/a 1 w/a 2 DELETE w/a 2 w/a  PUT w/end x "
    [[ $got == *"$want" ]] || failure "watch: <$got>, want <$want> at its end"
    # From the past, with the command run for each event.
    spawn "$scratch/past" watch w/ --prefix --rev="$first" -- sh -c 'echo "$ETCD_WATCH_EVENT_TYPE $ETCD_WATCH_KEY $ETCD_WATCH_VALUE"'
    shows '"PUT" "w/end" "x"' "$scratch/past"
    got=$(grep '^"' "$scratch/past" | tr '\n' ' ')
    want='"PUT" "w/a" "1" "PUT" "w/a" "2" "DELETE" "w/a" "" "PUT" "w/end" "x" '
    [ "$got" = "$want" ] || failure "watch from the past: <$got>"
    # Several watches on one stream, progress asked for by hand.
    mkfifo "$scratch/typed"
    exec 3<>"$scratch/typed"
    spawn "$scratch/interactive" watch -i <&3
    printf 'watch i/a --rev=%s\nwatch i/b i/d --rev=%s\n' "$first" "$first" >&3
    is "OK" put i/a 1
    is "OK" put i/c 2
    is "OK" put i/d outside
    shows i/a "$scratch/interactive"
    shows i/c "$scratch/interactive"
    printf 'progress\n' >&3
    shows "progress notify: $(revision)" "$scratch/interactive"
    grep -q i/d "$scratch/interactive" && failure "a watch beyond its range"
    exec 3>&-
}

leases() {
    local lease kept
    lease=$(e lease grant 60 | sed -n 's/^lease \([0-9a-f]*\) granted with TTL(60s)$/\1/p')
    [ -n "$lease" ] || failure "lease grant"
    is "OK" put l/a x --lease="$lease"
    is "OK" put l/b x --lease="$lease"
    # etcd lists the keys in no certain order.
    has "attached keys([l/" lease timetolive "$lease" --keys
    has "l/a" lease timetolive "$lease" --keys
    has "l/b" lease timetolive "$lease" --keys
    has "lease $lease granted with TTL(60s), remaining(" lease timetolive "$lease"
    has "lease $lease keepalived with TTL(60)" lease keep-alive --once "$lease"
    has "$lease" lease list
    is "lease $lease revoked" lease revoke "$lease"
    is "" get l/ --prefix
    has "lease $lease already expired" lease timetolive "$lease"
    fails "etcdserver: requested lease not found" lease revoke "$lease"
    fails "etcdserver: too large lease TTL" lease grant 9000000001
    # One is kept alive for longer than it would live, one is left to die.
    kept=$(e lease grant 2 | cut -d' ' -f2)
    lease=$(e lease grant 1 | cut -d' ' -f2)
    spawn "$scratch/kept" lease keep-alive "$kept"
    is "OK" put l/kept x --lease="$kept"
    is "OK" put l/left x --lease="$lease"
    for _ in $(seq 300); do
        [ -z "$(e get l/left)" ] && break
        sleep 0.1
    done
    is "" get l/left
    shows "keepalived with TTL(2)" "$scratch/kept"
    sleep 2.5
    is "l/kept\nx" get l/kept
    is "lease $kept revoked" lease revoke "$kept"
    shows "$kept expired or revoked" "$scratch/kept"
}

locks_and_elections() {
    spawn "$scratch/holder" lock mutex
    local holder=$!
    shows mutex/ "$scratch/holder"
    spawn "$scratch/waiter" lock mutex echo in turn
    local waiter=$!
    for _ in $(seq 300); do
        [ "$(field Count get mutex/ --prefix)" = 2 ] && break
        sleep 0.1
    done
    grep -q turn "$scratch/waiter" && failure "two hold the lock"
    kill -INT "$holder"
    wait "$waiter" || failure "the waiter got no lock"
    grep -q "in turn" "$scratch/waiter" || failure "the waiter's command did not run"
    wait "$holder" || true
    is "" get mutex/ --prefix
    spawn "$scratch/first" elect boss first
    local first=$!
    shows first "$scratch/first"
    spawn "$scratch/second" elect boss second
    local second=$!
    spawn "$scratch/observer" elect --listen boss
    shows first "$scratch/observer"
    for _ in $(seq 300); do
        [ "$(field Count get boss/ --prefix)" = 2 ] && break
        sleep 0.1
    done
    grep -q second "$scratch/second" && failure "two are elected"
    kill -INT "$first"
    shows second "$scratch/second"
    shows second "$scratch/observer"
    kill -INT "$second"
}

cluster() {
    local id
    id=$(e member list | cut -d, -f1)
    [[ $id =~ ^[0-9a-f]+$ ]] || failure "member list"
    has ", started, " member list
    has '"name":"' member list -w json
    has "is healthy: successfully committed proposal" endpoint health
    has "$id" endpoint status
    has '"version":"3.' endpoint status -w json
    has "$CONTRACT_ENDPOINT, " endpoint hashkv
    [ "$(e endpoint hashkv | sed 's/.*, //')" = "$(e endpoint hashkv | sed 's/.*, //')" ] || failure "two hashes"
    fails "etcdserver: member not found" member remove 7
    fails "etcdserver: re-configuration failed due to not enough started members" member remove "$id"
    fails "etcdserver: can only promote a learner member" member promote "$id"
    fails "etcdserver: bad leader transferee" move-leader 7
}

maintenance() {
    is "" alarm list
    has "Finished defragmenting etcd member" defrag
    is "OK" put m/a 1
    local old now
    old=$(revision)
    is "OK" put m/a 2
    is "OK" put m/a 3
    now=$(revision)
    is "compacted revision $now" compaction "$now" --physical
    fails "etcdserver: mvcc: required revision has been compacted" get m/a --rev="$old"
    fails "etcdserver: mvcc: required revision has been compacted" compaction "$old"
    fails "etcdserver: mvcc: required revision is a future revision" compaction 99999
    is "m/a\n3" get m/a --rev="$now"
    # A watch from a revision that is gone is told so and ends.
    fails "required revision has been compacted" watch m/a --rev="$old"
    # etcdctl cannot raise an alarm; clearing none is no error.
    is "" alarm disarm
}

snapshot() {
    is "OK" put snap/a 1
    is "OK" put snap/b 2
    e snapshot save "$scratch/snap.db" >"$scratch/out" 2>&1 || failure "$(cat "$scratch/out")"
    local status
    status=$("$ETCDCTL" snapshot status "$scratch/snap.db" -w fields 2>/dev/null)
    [ "$(sed -n 's/^"Revision" : //p' <<<"$status")" = "$(revision)" ] || failure "snapshot status: $status"
    "$ETCDCTL" snapshot restore "$scratch/snap.db" --data-dir="$scratch/restored" >"$scratch/out" 2>&1 || failure "$(cat "$scratch/out")"
    [ -s "$scratch/restored/member/snap/db" ] || failure "nothing was restored"
}

authentication() {
    fails "etcdserver: root user does not exist" auth enable
    is "User root created" user add root:rootpw
    fails "etcdserver: user name already exists" user add root:rootpw
    is "User al created" user add al:alpw
    is "User cert created" user add cert --no-password
    has "Role r created" role add r
    fails "etcdserver: role name already exists" role add r
    is "Role r updated" role grant-permission r read pub/ --prefix=true
    is "Role r updated" role grant-permission r readwrite own/ own0
    is "Role r updated" role grant-permission r write drop
    has "[pub/, pub0) (prefix pub/)" role get r
    has "[own/, own0) (prefix own/)" role get r
    is "Role r is granted to user al" user grant-role al r
    fails "etcdserver: role name not found" user grant-role al none
    fails "etcdserver: user name not found" user grant-role none r
    is "User: al\nRoles: r" user get al
    # Debian's 3.4 does not create the role root by itself.
    e role add root >/dev/null 2>&1 || true
    e user grant-role root root >/dev/null 2>&1 || true
    is "al\ncert\nroot" user list
    is "OK" put pub/a 1
    is "OK" put secret 1
    is "Authentication Enabled" auth enable
    fails "etcdserver: user name is empty" get pub/a
    user=(--user=al:wrong)
    fails "etcdserver: authentication failed, invalid user ID or password" get pub/a
    user=(--user=al:alpw)
    is "pub/a\n1" get pub/a
    is "OK" put own/a mine
    is "OK" put drop x
    for denied in "put pub/a 2" "get secret" "get drop" "del secret" "get own/ --from-key" "del pub/ --prefix" "role list" "user add eve:x" \
        "user list" "auth disable"; do
        # shellcheck disable=SC2086 # split on purpose
        fails "etcdserver: permission denied" $denied
    done
    # Other versions of etcd give this one other words and codes.
    fails "permission denied" defrag
    if got=$(printf 'value("secret") = "1"\n\nget pub/a\n\n\n' | e txn -i=false 2>&1); then failure "a compare reads a secret"; fi
    [[ $got == *"etcdserver: permission denied"* ]] || failure "$got"
    if got=$(printf '\nput own/b x\n\nput secret x\n\n' | e txn -i=false 2>&1); then failure "the branch not taken writes a secret"; fi
    [[ $got == *"etcdserver: permission denied"* ]] || failure "$got"
    got=$(e watch secret 2>&1) && failure "a watch of a secret: $got"
    [[ $got == *"permission denied"* ]] || failure "watch: $got"
    is "User: al\nRoles: r" user get al
    user=(--user=root:rootpw)
    is "secret\n1" get secret
    is "Role r is revoked from user al" user revoke-role al r
    user=(--user=al:alpw)
    fails "etcdserver: permission denied" get pub/a
    user=(--user=root:rootpw)
    printf 'newpw\n' | e user passwd al --interactive=false >"$scratch/out"
    grep -qx "Password updated" "$scratch/out" || failure "passwd"
    is "Role r is granted to user al" user grant-role al r
    user=(--user=al:alpw)
    fails "etcdserver: authentication failed" get pub/a
    user=(--user=al:newpw)
    is "pub/a\n1" get pub/a
    user=(--user=root:rootpw)
    is "Permission of range [pub/, pub0) is revoked from role r" role revoke-permission r pub/ --prefix
    user=(--user=al:newpw)
    fails "etcdserver: permission denied" get pub/a
    user=(--user=root:rootpw)
    fails "etcdserver: invalid auth management" user delete root
    is "User al deleted" user delete al
    is "Role r deleted" role delete r
    is "Authentication Disabled" auth disable
    user=()
    is "secret\n1" get secret
    is "User root deleted" user delete root
}

for check in keys_and_values transactions watches leases locks_and_elections cluster maintenance snapshot authentication; do
    started=$SECONDS
    "$check"
    echo "ok $check with $version ($((SECONDS - started)) s)"
done
