//! Who one is, what one may, and the kinds that say so, with kubectl.

use crate::harness::{Cluster, alone, need};

#[test]
fn who_one_is_and_what_one_may() {
    let kubectl = need!("kubectl");
    let _alone = alone();
    let cluster = Cluster::up(&kubectl);
    let k = cluster.client();

    let me = k.run("auth whoami");
    assert!(
        me.contains("kubernetes-admin") && me.contains("system:masters"),
        "{me}"
    );
    assert_eq!(k.run("auth can-i create pods"), "yes\n");
    assert_eq!(k.run("auth can-i get /healthz"), "yes\n");
    let all = k.run("auth can-i --list");
    assert!(all.contains("*.*"), "{all}");

    k.run("create serviceaccount robot");
    let token = k.run("create token robot --duration=10m");
    let token = token.trim();
    assert_eq!(token.split('.').count(), 3, "{token}");
    let as_robot = |rest: &str| {
        let server = k.run("config view --minify -o jsonpath={.clusters[0].cluster.server}");
        let empty = cluster.file("empty.yaml", "apiVersion: v1\nkind: Config\n");
        format!(
            "--kubeconfig={empty} --server={server} --insecure-skip-tls-verify --token={token} {rest}"
        )
    };
    let robot = k.run(&as_robot("auth whoami"));
    for word in [
        "system:serviceaccount:default:robot",
        "system:serviceaccounts:default",
        "authentication.kubernetes.io/credential-id",
    ] {
        assert!(robot.contains(word), "{robot}");
    }
    let refused = k.fail(&as_robot("get pods"));
    assert!(
        refused
            .contains("User \"system:serviceaccount:default:robot\" cannot list resource \"pods\""),
        "{refused}"
    );
    let can = k.output(&as_robot("auth can-i delete nodes"));
    assert_eq!(String::from_utf8_lossy(&can.stdout), "no\n");
    k.run("delete serviceaccount robot");
    let gone = k.fail(&as_robot("auth whoami"));
    assert!(gone.contains("Unauthorized"), "{gone}");
}

#[test]
fn who_is_asked_to_be_counts() {
    let kubectl = need!("kubectl");
    let _alone = alone();
    let cluster = Cluster::up(&kubectl);
    let k = cluster.client();
    let refused = k.fail("get pods --as=jane");
    assert!(
        refused.contains("User \"jane\" cannot list resource \"pods\""),
        "{refused}"
    );
    let can = k.output("auth can-i list pods --as=jane");
    assert_eq!(String::from_utf8_lossy(&can.stdout), "no\n");
    k.run("get pods --as=jane --as-group=system:masters");
    let me = k.run("auth whoami --as=system:serviceaccount:ns:robot");
    assert!(me.contains("system:serviceaccounts:ns"), "{me}");
}

#[test]
fn the_smaller_groups_are_made_and_printed() {
    let kubectl = need!("kubectl");
    let _alone = alone();
    let cluster = Cluster::up(&kubectl);
    let k = cluster.client();

    k.run("create role reader --verb=get,list --resource=pods");
    let role = k.run("get role reader");
    assert!(
        role.starts_with("NAME     CREATED AT\nreader   20"),
        "{role}"
    );
    k.run("create rolebinding readers --role=reader --user=alice --serviceaccount=default:robot");
    let binding = k.run("get rolebinding readers -o wide");
    for word in ["ROLE", "USERS", "Role/reader", "alice", "default/robot"] {
        assert!(binding.contains(word), "{binding}");
    }
    k.run("create clusterrole nodes --verb=* --resource=nodes");
    k.run("create clusterrolebinding nodes --clusterrole=nodes --group=ops");

    k.run("create ingress web --class=public --rule=a.example.com/=web:80,tls=web-tls");
    let ingress = k.run("get ingress web");
    let row = ingress.lines().nth(1).unwrap_or_default();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(
        cells.get(..5),
        Some(&["web", "public", "a.example.com", "80,", "443"][..]),
        "{ingress}"
    );
    let described = k.run("describe ingress web");
    assert!(described.contains("a.example.com"), "{described}");

    k.run("create priorityclass gold --value=1000 --description=first");
    let classes = k.run("get priorityclass");
    for word in [
        "GLOBAL-DEFAULT",
        "PREEMPTIONPOLICY",
        "gold ",
        "system-node-critical",
        "2000000000",
    ] {
        assert!(classes.contains(word), "{classes}");
    }
    let taken = k.fail("create priorityclass system-x --value=1");
    assert!(taken.contains("reserved for system use only"), "{taken}");

    let csr = cluster.file("csr.yaml", &signing_request());
    k.run(&format!("apply -f {csr}"));
    let pending = k.run("get csr alice");
    assert!(
        pending.contains("Pending") && pending.contains("kubernetes-admin"),
        "{pending}"
    );
    k.run("certificate approve alice");
    let approved = k.run("get csr alice");
    assert!(approved.contains("Approved"), "{approved}");
    let twice = k.output("certificate deny alice");
    assert!(!twice.status.success());

    let explained = k.run("explain networkpolicy.spec.ingress.from.ipBlock");
    assert!(explained.contains("except"), "{explained}");
    let resources = k.run("api-resources -o name");
    for name in [
        "storageclasses.storage.k8s.io",
        "resourceclaims.resource.k8s.io",
        "flowschemas.flowcontrol.apiserver.k8s.io",
        "apiservices.apiregistration.k8s.io",
        "validatingadmissionpolicies.admissionregistration.k8s.io",
        "tokenreviews.authentication.k8s.io",
    ] {
        assert!(
            resources.lines().any(|l| l == name),
            "{name} in {resources}"
        );
    }
}

fn signing_request() -> String {
    use base64::Engine as _;
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    let name = &mut params.distinguished_name;
    name.push(rcgen::DnType::CommonName, "alice");
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    let request = base64::engine::general_purpose::STANDARD.encode(pem);
    format!(
        "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: {{name: alice}}\nspec:\n  request: {request}\n  signerName: example.com/signer\n  usages: [client auth]\n"
    )
}
