//! Wiring: checks, registers, then runs loop, server, lease and status.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use client::{Client, InformerOptions, SharedInformer};
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::driver::{Driver, Inbox};
use crate::effects::Context;
use crate::error::AgentError;
use crate::events::Events;
use crate::objects::Objects;
use crate::options::{AgentOptions, RuntimeKind};
use crate::process::{ProcessRuntime, RootLock};
use crate::runtime::Runtime;
use crate::{machine, node, server};

/// Runs the node agent until cancelled. `ready` is told the server's address
/// once the node is registered and Ready. Containers outlive the agent.
pub async fn run(
    client: Client,
    options: AgentOptions,
    ready: oneshot::Sender<SocketAddr>,
    token: CancellationToken,
) -> Result<(), AgentError> {
    check(&options)?;
    let tls = options
        .server_tls
        .clone()
        .ok_or(AgentError::NoServerIdentity)?;
    let options = absolute(options)?;
    let _lock = RootLock::take(&options.root_dir)?;
    let listener = server::bind(&options).await?;
    let address = listener
        .local_addr()
        .map_err(AgentError::file("kubelet server"))?;
    let (runtime, runtime_events) = ProcessRuntime::open(
        &options.root_dir,
        &options.log_dir,
        options.shim_command.clone(),
        options.image_map.clone(),
    )
    .await?;
    let known = runtime.relist().await;
    let runtime: Arc<dyn Runtime> = Arc::new(runtime);
    let machine = machine::facts(&options, address.port(), runtime.version());
    let Some(own_node) = node::register(&client, &machine, &token).await? else {
        return Ok(());
    };

    let context = Arc::new(Context {
        client: client.clone(),
        runtime: Arc::clone(&runtime),
        root: options.root_dir.clone(),
        facts: machine::node_facts(&machine),
        objects: Objects::new(client.clone()),
        events: Events::new(client.clone(), &options.node_name),
    });
    // Everything below ends with this token, also if one part ends by itself.
    let token = token.child_token();
    let _cancel_on_return = token.clone().drop_guard();
    let inbox = Arc::new(Inbox::default());
    let pods = pod_source(&client, &options.node_name, &inbox);
    let (driver, questions) = Driver::new(
        context,
        Arc::clone(&inbox),
        runtime_events,
        known,
        token.clone(),
    );
    let server = server::Server::new(Arc::clone(&runtime), questions, tls);
    let _nobody_waits = ready.send(address);
    tracing::info!(node = options.node_name, %address, "kubelet is ready");
    let synced = async {
        pods.synced().await;
        inbox.synced();
    };
    tokio::join!(
        driver.run(),
        pods.run(token.clone()),
        server.serve(listener, token.clone()),
        node::keep_lease(client.clone(), own_node, token.clone()),
        node::keep_status(client, machine, token.clone()),
        async {
            tokio::select! {
                () = synced => {}
                () = token.cancelled() => {}
            }
        },
    );
    // From here on nothing is started: whoever takes the root directory over
    // finds everything there is.
    runtime.close().await;
    Ok(())
}

/// Mirrors the pods bound to this node into the inbox.
fn pod_source(client: &Client, node_name: &str, inbox: &Arc<Inbox>) -> SharedInformer<Pod> {
    let options = InformerOptions::all().fields(format!("spec.nodeName={node_name}"));
    let informer = SharedInformer::new(client, options);
    let inbox = Arc::clone(inbox);
    informer.add_handler(move |event| inbox.put(event));
    informer
}

/// Checks that a node of this name can be and that the chosen runtime can be
/// had, before anything is touched.
pub fn check(options: &AgentOptions) -> Result<(), AgentError> {
    if let Some(error) = meta::names::subdomain_errors(&options.node_name).first() {
        let name = &options.node_name;
        return Err(AgentError::Flag(format!("node name {name:?}: {error}")));
    }
    let socket = options.container_runtime_endpoint.clone();
    match options.runtime {
        RuntimeKind::Process => Ok(()),
        RuntimeKind::Cri if socket.exists() => Err(AgentError::RuntimeUnsupported { socket }),
        RuntimeKind::Cri => Err(AgentError::NoRuntimeSocket { socket }),
    }
}

/// Makes the directories and their paths absolute: shims run elsewhere.
fn absolute(mut options: AgentOptions) -> Result<AgentOptions, AgentError> {
    let make = |path: &Path| {
        std::fs::create_dir_all(path)
            .and_then(|()| path.canonicalize())
            .map_err(AgentError::file(path))
    };
    options.root_dir = make(&options.root_dir)?;
    options.log_dir = make(&options.log_dir)?;
    Ok(options)
}
