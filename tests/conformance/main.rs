//! The conformance behaviours of Kubernetes that an API server alone must show, each a
//! test under its upstream codename, and a table of them:
//!
//! ```sh
//! cargo test --test conformance            # all, and the table
//! cargo test --test conformance -- watch   # those whose name has these words
//! ```
//!
//! `list.toml` is the list. What it says is covered must pass; what it says waits is
//! named with what it waits for.

#![allow(clippy::unwrap_used, reason = "a test fails where it finds a surprise")]
#![allow(clippy::print_stderr, reason = "what a test says goes to its output")]
#![allow(clippy::print_stdout, reason = "the table is what this program is for")]

mod api;
mod cluster;
mod crds;
mod discovery;
mod fields;
#[path = "../e2e/harness.rs"]
#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "the end-to-end tests use the rest of it"
)]
mod harness;
mod kinds;
mod kubectl;
mod lists;
mod objects;
mod openapi;
mod subjects;
mod table;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;

use api::Api;
use harness::{Program, tool};
use table::Outcome;

type Test = fn(&Api);

/// Tests at once: they wait more than they work.
const WORKERS: usize = 4;

/// Makes of names of functions the pairs of a name and a function.
macro_rules! tests {
    ($($module:ident: $($name:ident)*;)*) => {
        /// Every test, under the name that `list.toml` calls it by.
        const TESTS: &[(&str, Test)] = &[$($((stringify!($name), $module::$name),)*)*];
    };
}

tests![
    cluster: api_server_endpoints chunks_compacted limit_range_defaults runtime_class_deleted
        runtime_class_unknown;
    crds: crd_create_delete crd_defaulting crd_list crd_status crd_watch;
    discovery: aggregated_discovery aggregated_discovery_accept
        aggregated_discovery_accept_for_crds aggregated_discovery_of_crds crd_in_discovery
        discovery_preferred discovery_resources server_version table_406;
    fields: fields_duplicate fields_extra fields_metadata fields_metadata_of_crs
        fields_no_schema fields_typed fields_valid;
    kubectl: kubectl_api_versions kubectl_diff kubectl_proxy_port kubectl_proxy_socket
        kubectl_version;
    lists: chunks chunks_compacted watch_from_version watch_order watch_restarted
        watch_selector watchers;
    objects: config_map_empty_key config_map_immutable config_map_lifecycle event_lifecycle
        events_collection kubernetes_service limit_ranges namespace_finalizer namespace_patch
        namespace_status namespace_takes_services namespace_update new_event
        new_events_collection priority_classes quota_lifecycle quota_status quota_update
        root_authority secret_empty_key secret_immutable secret_patch service_account_update service_status
        services_collection services_everywhere subject_reviews;
    openapi: openapi_groups openapi_kinds openapi_no_schema openapi_unknown_at_root
        openapi_unknown_embedded openapi_validation_schema openapi_version_not_served
        openapi_version_renamed openapi_versions;
    subjects: admission_policies admission_policy_bindings certificate_requests csi_drivers
        csi_nodes endpoint_slices endpoints flow_schemas ingress_classes ingresses leases
        mutating_match_conditions nodes pod_template_replaced pod_templates
        pod_with_csi_volume priority_levels runtime_classes service_accounts
        storage_capacities storage_classes validating_match_conditions
        volume_and_claim_status volume_attachment_status volume_attachments
        volumes_and_claims webhooks_in_discovery;
];

/// Tests that need kubectl.
fn needs_kubectl(name: &str) -> bool {
    name.starts_with("kubectl_")
        || matches!(
            name,
            "openapi_no_schema"
                | "openapi_unknown_at_root"
                | "openapi_unknown_embedded"
                | "openapi_validation_schema"
        )
}

thread_local! {
    /// What the test of this thread died of.
    static SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    let mut behaviours = table::read();
    table::check(&behaviours, TESTS.iter().map(|(name, _)| *name));
    behaviours.retain(|b| words.is_empty() || words.iter().any(|w| b.is_called(w)));
    if std::env::args().any(|a| a == "--list") {
        for test in behaviours.iter().filter_map(|b| b.test.as_deref()) {
            println!("{test}: test");
        }
        return ExitCode::SUCCESS;
    }
    let mut tests: Vec<&str> = behaviours
        .iter()
        .filter_map(|b| b.test.as_deref())
        .collect();
    tests.sort_unstable();
    tests.dedup();
    if tests.is_empty() {
        println!("0 passed, 0 failed");
        return ExitCode::SUCCESS;
    }
    let outcomes = run(&tests);
    let passed = table::print(&behaviours, &outcomes, words.is_empty());
    if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs tests against one cluster.
fn run(tests: &[&str]) -> Vec<(String, Outcome)> {
    std::panic::set_hook(Box::new(|info| {
        let at = info.location().map(ToString::to_string).unwrap_or_default();
        let what = info.payload_as_str().unwrap_or("something");
        SAID.with_borrow_mut(|said| *said = format!("{at}: {what}"));
    }));
    let folder = tempfile::tempdir().unwrap();
    let (mut program, api) = start(folder.path());
    let outcomes = Mutex::new(Vec::new());
    let queue = Mutex::new(tests.iter().copied().collect::<VecDeque<_>>());
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(name) = { queue.lock().unwrap().pop_front() } {
                    let outcome = one(&api, name);
                    outcomes.lock().unwrap().push((name.to_owned(), outcome));
                }
            });
        }
    });
    drop(api);
    program.terminate();
    outcomes.into_inner().unwrap()
}

/// Starts a cluster and waits until it is ready.
fn start(folder: &Path) -> (Program, Api) {
    let data = folder.join("data");
    let flags = [
        "up",
        "--data-dir",
        data.to_str().unwrap(),
        "--port=0",
        "--store-port=0",
    ];
    let mut program = Program::start(&folder.join("stderr"), &flags);
    program.line("ready in");
    let kubectl = tool("kubectl").unwrap_or_default();
    let api = Api::new(&data.join("kubeconfig"), folder, &kubectl);
    (program, api)
}

/// Runs one test; a panic is its failure.
fn one(api: &Api, name: &str) -> Outcome {
    if needs_kubectl(name) && tool("kubectl").is_none() {
        return Outcome::Skipped("kubectl is not there; run tests/run".to_owned());
    }
    let Some((_, test)) = TESTS.iter().find(|(n, _)| *n == name) else {
        return Outcome::Failed("there is no such test".to_owned());
    };
    match catch_unwind(AssertUnwindSafe(|| test(api))) {
        Ok(()) => Outcome::Passed,
        Err(_) => Outcome::Failed(SAID.with_borrow(Clone::clone)),
    }
}
