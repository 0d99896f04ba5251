#!/usr/bin/env bash
# helm installs, upgrades, rolls back and uninstalls a chart with hooks and CRDs.
set -euo pipefail
chart=$(cd "$(dirname "$0")/chart" && pwd)

fail() {
    echo "FAILED $*" >&2
    exit 1
}
is() { # what is wanted
    [ "$2" = "$3" ] || fail "$1: got '$2', want '$3'"
    echo "ok $1"
}
map() { # name field
    "$KUBECTL" get configmap "$1" -o "jsonpath={.data.$2}"
}

"$HELM" lint "$chart" >/dev/null
"$HELM" install shop "$chart" --wait --timeout 120s
is 'what was installed' "$(map shop-settings greeting)" hello
is 'the custom resource' "$("$KUBECTL" get basket shop-basket -o 'jsonpath={.spec.size}')" 3
is 'the hook before' "$(map shop-before revision)" 1
is 'the hook after is gone, since it succeeded' "$("$KUBECTL" get pod shop-after --ignore-not-found)" ''
is 'the status' "$("$HELM" status shop -o json | grep -o '"status":"[a-z]*"' | head -n 1)" '"status":"deployed"'

"$HELM" upgrade shop "$chart" --set greeting=welcome --set replicas=1 --wait --timeout 120s
is 'what was upgraded' "$(map shop-settings greeting)" welcome
is 'the deployment was waited for' "$("$KUBECTL" get deployment shop-web -o 'jsonpath={.status.readyReplicas}')" 1
is 'the hook again' "$(map shop-before revision)" 2

"$HELM" rollback shop 1 --wait --timeout 120s
is 'what was rolled back' "$(map shop-settings greeting)" hello
is 'three revisions' "$("$HELM" history shop --max 9 | tail -n +2 | wc -l | tr -d ' ')" 3
is 'the manifest that is' "$("$HELM" get manifest shop | grep -c '^kind: ')" 4
is 'the values of then' "$("$HELM" get values shop --revision 2 -o json)" '{"greeting":"welcome","replicas":1}'

"$HELM" upgrade shop "$chart" --set greeting=draft --dry-run=server >/dev/null
is 'a dry run changes nothing' "$(map shop-settings greeting)" hello
if "$HELM" install shop "$chart" 2>/dev/null; then fail 'installed twice under one name'; fi

"$HELM" list -q | grep -qx shop || fail 'the list lacks the release'
"$HELM" uninstall shop --wait --timeout 120s
is 'nothing is left' "$("$KUBECTL" get deployments,services,baskets -l app.kubernetes.io/managed-by=Helm -o name)" ''
is 'not the settings' "$("$KUBECTL" get configmap shop-settings --ignore-not-found)" ''
is 'the last words' "$(map shop-last-words said)" goodbye
is 'definitions stay' "$("$KUBECTL" get crd baskets.shop.example.com -o name)" customresourcedefinition.apiextensions.k8s.io/baskets.shop.example.com
is 'no release' "$("$HELM" list -q)" ''
