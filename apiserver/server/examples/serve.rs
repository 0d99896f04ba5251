//! Serves the API over a store in memory, the embedded store or an etcd:
//! `serve <cert-dir> [port] [data-dir | http://etcd:2379]`.

use std::path::PathBuf;
use std::sync::Arc;

use apiserver::storage::memory::MemoryStore;
use apiserver::{Config, Server, StoreSource};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let mut args = std::env::args().skip(1);
    let cert_dir = PathBuf::from(
        args.next()
            .ok_or("usage: serve <cert-dir> [port] [data-dir]")?,
    );
    let port = args.next().map_or(Ok(0), |p| p.parse())?;
    let started = std::time::Instant::now();
    let place = args.next();
    let mut member = None;
    let store = match place {
        None => StoreSource::Other(Arc::new(MemoryStore::default())),
        Some(url) if url.starts_with("http") => StoreSource::Etcd {
            endpoints: vec![url],
            tls: None,
        },
        Some(dir) => {
            let running = kvserver::Server::start(kvserver::Config::new(dir)).await?;
            let handle = running.handle.clone();
            member = Some(running);
            StoreSource::Embedded(handle)
        }
    };
    let running = Server::start(Config::new(store, &cert_dir, port)).await?;
    let kubeconfig = cert_dir.join("admin.kubeconfig");
    running.write_admin_kubeconfig(&kubeconfig)?;
    tracing::info!(url = running.url(), took = ?started.elapsed(), kubeconfig = %kubeconfig.display(), "serving");
    tokio::signal::ctrl_c().await?;
    running.shutdown().await;
    if let Some(member) = member {
        member.shutdown().await;
    }
    Ok(())
}
